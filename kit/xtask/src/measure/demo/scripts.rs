// SPDX-License-Identifier: GPL-2.0-only
//! The scripts that host and guest run.

/// How many seconds `vsock-redirect` may take to deliver the rest when the sender is done. The
/// sender's send buffer is 4 MiB.
pub const DRAIN: u64 = 60;

/// The script of the host.
pub const HOST: &str = r#"
# Waits for a line from the guest.
await() {
    until grep -q "^demo $1" /tmp/guest; do
        kill -0 $guest 2>/dev/null || { echo "demo: the guest is gone before '$1'"; end 1; }
        sleep 0.2
    done
}
await ready
for arm in @ARMS@; do
    # A vsock connect fails after 2 s, and a busy machine can take longer to answer.
    for try in 1 2 3; do
        # The server expects one byte more than is sent, so it reads on until the end of the stream.
        '@GUEST@' serve-vsock 1234 --bytes $((@BYTES@ + 1)) --timeout @SERVER_LIMIT@ > /tmp/served 2>&1 &
        server=$!
        until ss -H -l --vsock | grep -q ':1234 '; do
            kill -0 $server 2>/dev/null || { cat /tmp/served; end 1; }
            sleep 0.1
        done
        echo "$arm $try" >&3
        await "done $arm $try .*connected"
        # The redirector is gone, so the connection is.
        for i in $(seq 50); do
            kill -0 $server 2>/dev/null || break
            sleep 0.1
        done
        kill $server 2>/dev/null
        wait $server
        grep -q "^demo done $arm $try unconnected" /tmp/guest || break
    done
    echo "demo server $arm $(tail -n 1 /tmp/served)"
done
echo end >&3
"#;

/// The script of the guest: runs the arms that the host names on the console.
pub const GUEST: &str = r#"#!/bin/sh
stty -echo
modprobe vmw_vsock_virtio_transport || exit 1
sock=/path/to/sock
mkdir -p /path/to
echo demo ready
while read -r arm try && [ $arm != end ]; do
    if [ $arm = direct ]; then
        guest send-vsock 2 1234 --size 65536 --bytes @BYTES@ --timeout @LIMIT@ > /tmp/sent 2>&1
        how=connected
        ! grep -q "cannot connect" /tmp/sent || how=unconnected
        echo "demo sender $arm $(tail -n 1 /tmp/sent)"
        echo "demo done $arm $try $how"
        continue
    fi
    if [ $arm = socat ]; then
        # By itself socat cuts a datagram after 8192 bytes.
        socat -b 65536 VSOCK-CONNECT:2:1234 UNIX-RECV:$sock 2> /tmp/said &
    else
        vsock-redirect --drain-limit @DRAIN@ unix-recv:$sock vsock-connect:2:1234 2> /tmp/said &
    fi
    redirector=$!
    until [ -S $sock ] || ! kill -0 $redirector 2>/dev/null; do sleep 0.1; done
    how=unconnected
    if [ -S $sock ]; then
        how=connected
        guest send-unix-dgram $sock --size 65536 --bytes @BYTES@ --timeout @LIMIT@ > /tmp/sent 2>&1
        # A signal ends socat at once, whatever it still has to send.
        [ $arm != socat ] || sleep 2
        kill $redirector 2>/dev/null
    fi
    wait $redirector
    rm -f $sock
    echo "demo redirector $arm $(tr "\n" " " < /tmp/said)"
    echo "demo sender $arm $(tail -n 1 /tmp/sent 2>/dev/null)"
    rm -f /tmp/sent
    echo "demo done $arm $try $how"
done
"#;
