# In a guest: two hosts of one device. The kernel's own SCSI target has a disk in memory, which two
# initiators reach over iSCSI; a daemon on each is a host.
export PATH=/host:$PATH LD_LIBRARY_PATH=/host RUST_LOG=info

on() { # HOST COMMAND...: the host's command line
  HEADGATE_STATE_DIR=/tmp/$1
  export HEADGATE_STATE_DIR
  shift
  headgate "$@"
}

serve() { # HOST ARGUMENTS...: starts its daemon, and waits until it answers
  host=$1
  shift
  mkdir -p /tmp/$host
  headgate serve --state-dir /tmp/$host "$@" >>/tmp/$host.log 2>&1 &
  echo $! >/tmp/$host.pid
  tries=0
  until on $host disk list >/tmp/$host.try 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 240 ] || { cat /tmp/$host.try /tmp/$host.log; return 1; }
    usleep 250000
  done
}

stop() { # HOST SIGNAL: and waits for its end
  kill -$2 $(cat /tmp/$1.pid)
  while [ -d /proc/$(cat /tmp/$1.pid) ] && ! grep -q '^State:.Z' /proc/$(cat /tmp/$1.pid)/status; do
    usleep 100000
  done
}

until_state() { # HOST STATE DISK: waits until the disk is so
  tries=0
  until on $1 disk show $3 --json | grep -q "\"state\": *\"$2\""; do
    tries=$((tries + 1))
    [ $tries -lt 240 ] || { on $1 disk show $3; tail -40 /tmp/$1.log; return 1; }
    usleep 250000
  done
}

until_over() { # HOST: waits until none of its disks moves, and no copy is left
  tries=0
  while on $1 disk moves --json | grep '"state"' | grep -qv ended; do
    tries=$((tries + 1))
    [ $tries -lt 1200 ] || { on $1 disk moves; tail -40 /tmp/$1.log; return 1; }
    usleep 250000
  done
}

target() { # NAME SERIAL PAGES NUMBER: a disk in memory
  lun=/sys/kernel/config/target/core/rd_mcp_$4/$1
  mkdir -p $lun
  echo "rd_pages=$3" >$lun/control
  echo "$2" >$lun/wwn/vpd_unit_serial
  echo 1 >$lun/enable
}

path() { # NAME NUMBER INITIATOR: a path to it over iSCSI, which becomes the next /dev/sdX
  portal=/sys/kernel/config/target/iscsi/iqn.2026-11.lab:target$3/tpgt_1
  mkdir -p ${portal%/tpgt_1} && mkdir $portal && mkdir $portal/lun/lun_0 || return 1
  ln -s /sys/kernel/config/target/core/rd_mcp_$2/$1 $portal/lun/lun_0/disk
  acl=$portal/acls/iqn.2026-11.lab:host$3
  mkdir $acl && mkdir $acl/lun_0 && ln -s $portal/lun/lun_0 $acl/lun_0/disk || return 1
  echo 0 >$portal/attrib/authentication
  mkdir $portal/np/127.0.0.1:326$3 && echo 1 >$portal/enable || return 1
  before=$(ls /sys/block | grep -c '^sd')
  iscsistart -i iqn.2026-11.lab:host$3 -t iqn.2026-11.lab:target$3 -g 1 -a 127.0.0.1 \
    -p 326$3 >/tmp/iscsi$3.log 2>&1
  tries=0
  until [ "$(ls /sys/block | grep -c '^sd')" -gt "$before" ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { cat /tmp/iscsi$3.log; dmesg | tail -30; return 1; }
    usleep 100000
  done
}

nvme_target() { # NAME DEVICE RESERVATIONS PORT: a subsystem with a namespace, at port 442PORT
  subsystem=/sys/kernel/config/nvmet/subsystems/$1
  mkdir $subsystem && echo 1 >$subsystem/attr_allow_any_host || return 1
  mkdir $subsystem/namespaces/1 && echo $2 >$subsystem/namespaces/1/device_path || return 1
  echo $3 >$subsystem/namespaces/1/resv_enable || return 1
  echo 1 >$subsystem/namespaces/1/enable || return 1
  nvme_port $1 $4
}

nvme_port() { # NAME PORT: one more port of a subsystem
  port=/sys/kernel/config/nvmet/ports/$2
  mkdir $port && echo tcp >$port/addr_trtype && echo ipv4 >$port/addr_adrfam || return 1
  echo 127.0.0.1 >$port/addr_traddr && echo 442$2 >$port/addr_trsvcid || return 1
  ln -s /sys/kernel/config/nvmet/subsystems/$1 $port/subsystems/$1
}

nvme_path() { # NAME PORT HOST DEVICES: a host's way to it; there are so many devices then
  echo "transport=tcp,traddr=127.0.0.1,trsvcid=442$2,nqn=$1,hostnqn=host$3,hostid=00000000-0000-0000-0000-00000000000$3" \
    >/dev/nvme-fabrics || { dmesg | tail -30; return 1; }
  tries=0
  until [ "$(ls /dev/ | grep -c '^nvme[0-9]*n1$')" -ge "$4" ]; do
    tries=$((tries + 1))
    [ $tries -lt 100 ] || { ls /dev; dmesg | tail -30; return 1; }
    usleep 100000
  done
}

nvme_controller() { # PORT: where the kernel has the live controller that is reached by it
  tries=0
  while [ $tries -lt 300 ]; do
    for controller in /sys/class/nvme/nvme[0-9]*; do
      grep -q "trsvcid=442$1" $controller/address && grep -q live $controller/state || continue
      echo $controller
      return
    done
    tries=$((tries + 1))
    usleep 100000
  done
  return 1
}
