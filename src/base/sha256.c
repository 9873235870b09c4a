/*
 * sha256.c - SHA-256 (FIPS 180-4)
 *
 * With the processor's own instructions where it has them: layers of images are hashed whole, and that is some six times
 * faster. No library, because PID 1 of sandboxes links none.
 */
#include "base/sha256.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__) && !defined(SHA256_PLAIN)
#include <cpuid.h>
#include <immintrin.h>
#endif

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

void sha256_init(struct sha256 *s)
{
    static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                        0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

    memset(s, 0, sizeof *s);
    memcpy(s->state, initial, sizeof initial);
}

static inline __attribute__((always_inline)) uint32_t rotate(uint32_t x, unsigned n)
{
    return x >> n | x << (32 - n);
}

/* One round; the names move on instead of the values, which is several times faster where speed is not asked for. */
#define ROUND(a, b, c, d, e, f, g, h, i)                                                          \
    do {                                                                                          \
        uint32_t t = h + (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (g ^ (e & (f ^ g))) +   \
                     round_constants[i] + w[i];                                                   \
        d += t;                                                                                   \
        h = t + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) + ((a & b) | (c & (a | b)));       \
    } while (0)

static void add_block(struct sha256 *s, const uint8_t *p)
{
    uint32_t w[64];
    uint32_t a = s->state[0], b = s->state[1], c = s->state[2], d = s->state[3];
    uint32_t e = s->state[4], f = s->state[5], g = s->state[6], h = s->state[7];

    for (size_t i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (size_t i = 16; i < 64; i++) {
        uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
        uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    for (size_t i = 0; i < 64; i += 8) {
        ROUND(a, b, c, d, e, f, g, h, i);
        ROUND(h, a, b, c, d, e, f, g, i + 1);
        ROUND(g, h, a, b, c, d, e, f, i + 2);
        ROUND(f, g, h, a, b, c, d, e, i + 3);
        ROUND(e, f, g, h, a, b, c, d, i + 4);
        ROUND(d, e, f, g, h, a, b, c, i + 5);
        ROUND(c, d, e, f, g, h, a, b, i + 6);
        ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    s->state[0] += a;
    s->state[1] += b;
    s->state[2] += c;
    s->state[3] += d;
    s->state[4] += e;
    s->state[5] += f;
    s->state[6] += g;
    s->state[7] += h;
}

#if defined(__x86_64__) && !defined(SHA256_PLAIN)

/* Intel's manual, volume 2, CPUID: SSSE3, SSE4.1, SHA. */
static bool has_instructions(void)
{
    static int known = -1;
    unsigned a, b, c, d;

    if (known < 0)
        known = __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & 1u << 9) != 0 && (c & 1u << 19) != 0 &&
                __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & 1u << 29) != 0;
    return known != 0;
}

/* The state is kept as the instructions want it: a b e f and c d g h, from the highest word down. */
__attribute__((target("sha,sse4.1,ssse3"))) static void add_blocks_fast(uint32_t state[8], const uint8_t *p, size_t n)
{
    const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    __m128i cdab = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);
    __m128i efgh = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b);
    __m128i abef = _mm_alignr_epi8(cdab, efgh, 8), cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);

    for (; n > 0; n--, p += 64) {
        const __m128i abef_before = abef, cdgh_before = cdgh;
        __m128i m[4];
#pragma GCC unroll 16
        for (size_t i = 0; i < 16; i++) {
            __m128i *w = &m[i % 4], before = i < 4 ? swap : m[(i + 3) % 4];
            if (i < 4)
                *w = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), swap);
            else
                *w = _mm_sha256msg2_epu32(_mm_add_epi32(_mm_sha256msg1_epu32(*w, m[(i + 1) % 4]),
                                                        _mm_alignr_epi8(before, m[(i + 2) % 4], 4)), before);
            __m128i k = _mm_add_epi32(*w, _mm_loadu_si128((const __m128i *)(round_constants + 4 * i)));
            cdgh = _mm_sha256rnds2_epu32(cdgh, abef, k);
            abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(k, 0x0e));
        }
        abef = _mm_add_epi32(abef, abef_before);
        cdgh = _mm_add_epi32(cdgh, cdgh_before);
    }
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b), dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}

#else

static bool has_instructions(void)
{
    return false;
}

static void add_blocks_fast(uint32_t state[8], const uint8_t *p, size_t n)
{
}

#endif

static void add_blocks(struct sha256 *s, const uint8_t *p, size_t n)
{
    if (has_instructions()) {
        add_blocks_fast(s->state, p, n);
        return;
    }
    for (; n > 0; n--, p += 64)
        add_block(s, p);
}

void sha256_add(struct sha256 *s, const void *data, size_t n)
{
    const uint8_t *p = data;
    size_t have = (size_t)(s->nbytes % 64);

    s->nbytes += n;
    if (have > 0) {
        size_t take = 64 - have < n ? 64 - have : n;
        memcpy(s->block + have, p, take);
        p += take;
        n -= take;
        if (have + take < 64)
            return;
        add_blocks(s, s->block, 1);
    }
    add_blocks(s, p, n / 64);
    p += n / 64 * 64;
    if (n % 64 > 0)
        memcpy(s->block, p, n % 64);
}

void sha256_end(struct sha256 *s, uint8_t out[SHA256_SIZE])
{
    static const uint8_t padding[64] = {0x80};
    uint64_t bits = s->nbytes * 8;
    size_t have = (size_t)(s->nbytes % 64);
    uint8_t length[8];

    for (size_t i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_add(s, padding, have < 56 ? 56 - have : 120 - have);
    sha256_add(s, length, sizeof length);
    for (size_t i = 0; i < 8; i++)
        for (size_t j = 0; j < 4; j++)
            out[4 * i + j] = (uint8_t)(s->state[i] >> (24 - 8 * j));
}

void sha256_hex(const uint8_t digest[SHA256_SIZE], char out[SHA256_HEX_SIZE])
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < SHA256_SIZE; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * SHA256_SIZE] = '\0';
}
