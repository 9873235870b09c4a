# tmux, script, less, and what they need of a terminal.
# as: root dev
cd "$(mktemp -d)"
export TERM=xterm-256color
script -qec 'tty; stty -a; tput cols' typescript </dev/null >out
grep -q '^/dev/pts/' out
grep -q 'speed' typescript
script -qec 'exit 3' /dev/null </dev/null && exit 1 || [ $? = 3 ]
tmux -S "$PWD/s" new-session -d -x 100 -y 30 'stty size; cat'
until tmux -S "$PWD/s" capture-pane -p | grep -qx '30 100'; do sleep 0.1; done
tmux -S "$PWD/s" send-keys 'typed in' Enter
until tmux -S "$PWD/s" capture-pane -p | grep -c 'typed in' | grep -qx 2; do sleep 0.1; done
tmux -S "$PWD/s" split-window -h 'sleep 100'
tmux -S "$PWD/s" list-panes | wc -l | grep -qx 2
tmux -S "$PWD/s" kill-server
seq 100 >lines
script -qec 'less lines' /dev/null <<<'q' | grep -q 1
[ "$(tput -T xterm colors)" = 8 ]
reset -Q -w 2>/dev/null || true
