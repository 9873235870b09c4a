/*
 * modes.c - following terminal modes
 */
#include "cli/modes.h"

#include "base/mem.h"

enum { PLAIN, ESC, CSI, CSI_PRIVATE, CSI_OTHER, STRING, STRING_ESC };

#define MODE_WRAP 7
#define MODE_CURSOR 25

static void set_mode(struct modes *m, uint16_t number, bool on)
{
    for (size_t i = 0; i < m->nseen; i++) {
        if (m->seen[i].number == number) {
            m->seen[i].on = on;
            return;
        }
    }
    if (m->nseen < MODES_MAX) {
        m->seen[m->nseen].number = number;
        m->seen[m->nseen++].on = on;
    }
}

static void end_sequence(struct modes *m, uint8_t c)
{
    if (m->state == CSI_PRIVATE && (c == 'h' || c == 'l')) {
        for (size_t i = 0; i < m->nparams; i++)
            set_mode(m, m->params[i], c == 'h');
    } else if (m->state == CSI && c == 'm') {
        m->style = true;
    } else if (c == 'c' || c == 'n' || c == 't' || c == 'p' || c == 'q' || c == 'u' || c == 'x') {
        m->asked = true;
    }
    m->state = PLAIN;
}

static void csi(struct modes *m, uint8_t c)
{
    if (c >= '0' && c <= '9') {
        uint16_t *p = &m->params[m->nparams - 1];
        *p = *p < 6000 ? (uint16_t)(*p * 10 + (c - '0')) : 60000;
    } else if (c == ';' || c == ':') {
        if (m->nparams < array_len(m->params))
            m->params[m->nparams++] = 0;
    } else if (c == '?' && m->state == CSI) {
        m->state = CSI_PRIVATE;
    } else if (c >= 0x40 && c <= 0x7e) {
        end_sequence(m, c);
    } else if (c >= 0x20) {
        if (m->state == CSI)
            m->state = CSI_OTHER;
    } else if (c == 0x1b) {
        m->state = ESC;
    }
}

static void escape(struct modes *m, uint8_t c)
{
    m->state = PLAIN;
    if (c == '[') {
        m->state = CSI;
        m->nparams = 1;
        m->params[0] = 0;
    } else if (c == ']' || c == 'P' || c == '_' || c == '^' || c == 'X') {
        m->state = STRING;
        m->asked = true;
    } else if (c == '=') {
        m->keypad = true;
    } else if (c == '>') {
        m->keypad = false;
    } else if (c == 'Z') {
        m->asked = true;
    } else if (c == 'c') {
        m->nseen = 0;
        m->keypad = m->style = false;
    }
}

void modes_feed(struct modes *m, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;

    for (size_t i = 0; i < n; i++) {
        uint8_t c = p[i];
        switch (m->state) {
        case PLAIN:
            if (c == 0x1b)
                m->state = ESC;
            else if (c == 0x05)
                m->asked = true;        /* ENQ: the terminal sends its answerback */
            break;
        case ESC:
            escape(m, c);
            break;
        case STRING:
            if (c == 0x07 || c == 0x18 || c == 0x1a)
                m->state = PLAIN;
            else if (c == 0x1b)
                m->state = STRING_ESC;
            break;
        case STRING_ESC:
            m->state = PLAIN;
            if (c != '\\')
                escape(m, c);
            break;
        default:
            csi(m, c);
        }
    }
}

void modes_undo(const struct modes *m, struct buf *out)
{
    /* A string the program never ended would swallow what follows. */
    if (m->state == STRING || m->state == STRING_ESC)
        (void)buf_adds(out, "\033\\");
    for (size_t i = 0; i < m->nseen; i++) {
        bool normally_on = m->seen[i].number == MODE_WRAP || m->seen[i].number == MODE_CURSOR;
        if (m->seen[i].on != normally_on)
            (void)buf_addf(out, "\033[?%u%c", m->seen[i].number, normally_on ? 'h' : 'l');
    }
    if (m->keypad)
        (void)buf_adds(out, "\033>");
    if (m->style)
        (void)buf_adds(out, "\033[m");
}
