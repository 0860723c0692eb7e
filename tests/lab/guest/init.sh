#!/bin/busybox sh
# The guest's first process: loads drivers, then runs the scripts that the host sends through a
# virtio-serial port. host -> guest: length, newline, script. guest -> host: "ready" once; then per
# script exit status, length, newline, output.
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt /etc
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
/bin/busybox mount -t tmpfs tmpfs /tmp
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
ln -sf /proc/mounts /etc/mtab
while read -r module; do
  insmod "$module" || echo "lab: no module $module"
done </lab/modules

# The port appears some time after its driver.
port=
tries=0
while [ -z "$port" ] && [ $tries -lt 300 ]; do
  for name in /sys/class/virtio-ports/*/name; do
    [ -e "$name" ] && [ "$(cat "$name")" = headgate.lab ] && port=$(basename "$(dirname "$name")")
  done
  tries=$((tries + 1))
  [ -n "$port" ] || usleep 100000
done
if [ -z "$port" ]; then
  echo "lab: no port to the host"
  poweroff -f
fi
exec 3<>"/dev/$port"
echo ready >&3
while read -r length <&3; do
  head -c "$length" <&3 >/tmp/.script
  sh /tmp/.script >/tmp/.out 2>&1 </dev/null 3<&-
  status=$?
  echo "$status $(stat -c %s /tmp/.out)" >&3
  cat /tmp/.out >&3
done
# The host has left.
poweroff -f
