# Runs as root in a machine whose systemd has the unit. Tries what users may and may not, and prints
# a line for each.
verdict() { echo "verdict: $1: $2"; }

as() { # USER SCRIPT
  setpriv --reuid="$1" --regid="$(id -g "$1")" --init-groups bash -c "cd /var/lib/headgate; $2" \
    >/tmp/said 2>&1
}

may() { # USER WHAT SCRIPT
  if as "$1" "$3"; then verdict "$1 may $2" right; else verdict "$1 may $2" "WRONG $(tail -c 300 /tmp/said | tr '\n' ' ')"; fi
}

may_not() {
  if as "$1" "$3"; then verdict "$1 may not $2" "WRONG $(tail -c 300 /tmp/said | tr '\n' ' ')"; else verdict "$1 may not $2" right; fi
}

systemd-sysusers || verdict "the users are made" WRONG
install -d -o headgate -g headgate /srv/headgate
install -d /srv/elsewhere
systemctl start headgate.service || {
  systemctl status headgate.service --no-pager
  journalctl -u headgate --no-pager | tail -50
  verdict "the unit starts" WRONG
}
systemctl is-active --quiet headgate.service && verdict "the unit starts" right

export HEADGATE_STATE_DIR=/var/lib/headgate
status=/proc/$(systemctl show -P MainPID headgate.service)/status
state() { # WHAT PATTERN
  if grep -qE "$2" "$status"; then verdict "the daemon $1" right; else verdict "the daemon $1" WRONG; fi
}
state "has no capabilities" '^CapEff:\s*0+$'
state "can get none" '^CapBnd:\s*0+$'
state "can gain no privileges" '^NoNewPrivs:\s*1$'
state "has its system calls filtered" '^Seccomp:\s*2$'
state "is not root" "^Uid:\s*$(id -u headgate)\s"

if grep -q landlock /sys/kernel/security/lsm; then
  journalctl -u headgate --no-pager | grep -q 'Landlock confines the daemon' &&
    verdict "the daemon is confined by Landlock" right || verdict "the daemon is confined by Landlock" WRONG
else
  echo "lab: this kernel has no Landlock"
fi

# What an operator does.
may admin "create disks" 'headgate disk create red0 --size 16M --datastore default --vm red &&
  headgate disk create blue0 --size 16M --datastore default --vm blue && headgate disk create free0 --size 16M --datastore default'
may admin "say whose they are" 'headgate vm set red --socket-user vmred &&
  headgate vm set blue --socket-user vmblue'
may admin "add an allowed directory" 'headgate datastore add srv --dir /srv/headgate &&
  headgate disk create srv0 --size 16M --datastore srv'
may_not admin "add another directory" 'headgate datastore add etc --dir /etc'
grep -q 'not in a directory that is allowed' /tmp/said && verdict "the reason is told" right
may_not admin "add a link to another directory" 'headgate datastore add out --dir /var/lib/headgate/../../../etc'
may_not admin "add a block device" 'headgate datastore add ram --block /dev/ram0 || headgate datastore add ram --block /dev/sda'

# What the machines do.
may vmred "use its disk over NBD" 'head -c 1M /dev/urandom >/tmp/red &&
  truncate -s 16M /tmp/red && nbdcopy --flush /tmp/red "nbd+unix:///red0?socket=machines/red/nbd.sock" &&
  nbdcopy "nbd+unix:///red0?socket=machines/red/nbd.sock" /tmp/again && cmp /tmp/red /tmp/again'
may_not vmred "see another machine's export" 'nbdinfo "nbd+unix:///blue0?socket=machines/red/nbd.sock"'
may_not vmred "use another machine's socket" 'nbdinfo --list "nbd+unix:///?socket=machines/blue/nbd.sock"'
may_not vmred "use the socket of all disks" 'nbdinfo --list "nbd+unix:///?socket=nbd.sock"'
may_not vmred "use the API" 'headgate disk list'

# What a process in QEMU's group tries.
may_not mallory "add a block device" 'headgate datastore add sda --block /dev/sda'
may_not mallory "plant a link" 'ln -s /etc/shadow default/planted.img'
may_not mallory "take the planted link over" 'headgate disk takeover planted --datastore default'
may_not mallory "move a socket" 'mv vhost/blue0.sock vhost/.stolen'
may_not mallory "put a socket in its place" 'rm -f vhost/blue0.sock && touch vhost/blue0.sock'
may_not mallory "open another machine's exports" 'nbdinfo --list "nbd+unix:///?socket=machines/blue/nbd.sock"'
may_not mallory "read the catalog" 'cat catalog.sqlite'
may_not mallory "read an image" 'cat default/blue0.img'
may mallory "connect to a disk without a machine" 'curl -s --unix-socket vhost/free0.sock http://x/; [ $? != 7 ]'
may_not mallory "connect to a machine's disk" 'curl -s --unix-socket vhost/blue0.sock http://x/; [ $? != 7 ]'

# Who only reads.
may reader "list disks" 'headgate disk list | grep -q blue0'
may_not reader "change a disk" 'headgate disk set blue0 --limit 5'
may_not reader "remove a disk" 'headgate disk remove blue0'

# What the daemon itself can do, were it broken into: as its user, in its mount namespace.
inside() {
  nsenter --target "$(systemctl show -P MainPID headgate.service)" --mount \
    setpriv --reuid=headgate --regid=headgate --clear-groups bash -c "$1" >/tmp/said 2>&1
}
for try in 'echo x >/etc/x' 'echo x >/srv/elsewhere/x' 'echo x >~root/x' 'cat /etc/shadow' \
  'echo 1 >/proc/sys/kernel/panic' 'ls ~root' 'test -e /dev/ttyS0'; do
  if inside "$try"; then verdict "the daemon cannot: $try" "WRONG"; else verdict "the daemon cannot: $try" right; fi
done

# It comes back with everything.
kill -9 "$(systemctl show -P MainPID headgate.service)"
for _ in $(seq 300); do
  as admin 'headgate disk list' && grep -q blue0 /tmp/said && break
  sleep 0.2
done
may vmblue "use its disk after a restart" 'nbdinfo "nbd+unix:///blue0?socket=machines/blue/nbd.sock"'
may_not vmred "use it then" 'nbdinfo "nbd+unix:///blue0?socket=machines/blue/nbd.sock"'
echo "lab: done"
