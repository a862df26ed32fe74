// SPDX-License-Identifier: GPL-2.0-only
//! The guest that runs the tests.

use std::path::Path;

use anyhow::Result;

use super::build::PROGRAMS;
use super::cases::{OneCase, MODES};
use super::results::{AGAIN, RESULT};
use crate::guest::initramfs::Initramfs;
use crate::guest::programs::Programs;
use crate::host::env::Env;
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::Image;

/// The main program of the guest. Each case has its own server, client and time limit, because a
/// case that hangs would take the others with it. Its arguments are how often a case is tried, the
/// case or `all`, and the modes.
const GUEST_MAIN: &str = r#"#!/bin/sh
for i in vsock vsock_loopback; do modprobe -q $i; done
cd /oracle
tries=$1 only=$2
shift 2
port=2000
# Runs a program in the current mode.
in_mode() {
    if [ $mode = outside ]; then
        exec timeout -s KILL 30 "$@"
    fi
    exec timeout -s KILL 30 env LD_PRELOAD=/oracle/libpreload.so PRELOAD_MODE=$mode "$@"
}
# Prints a result, and the output of the programs if the case failed. The tests have time limits
# of their own that a busy machine can miss. So a case that fails is tried once more, and the first
# failure is printed too.
report() {
    if [ $1 = fail ] && [ $try -lt $tries ]; then
        echo "@AGAIN@ $mode $2"
        return
    fi
    echo "@RESULT@ $mode $1 $2"
    [ $1 = pass ] || sed 's/^/oracle| /' /tmp/server /tmp/client
}
# Runs a case if its number or its name is wanted, and again if it fails.
case_of() {
    if [ $only != all ] && [ $only != "$1" ] && [ $only != "$2" ]; then return; fi
    for try in $(seq $tries); do
        verdict=fail
        "$@"
        [ $verdict = fail ] || break
    done
}
listening() {
    for i in $(seq 100); do
        grep -q "$(printf ':%04X 00000000:0000 0A' $1)" /proc/net/tcp && return
        usleep 20000
    done
}
vsock_test() {
    port=$((port + 1))
    in_mode ./vsock_test --mode=server --control-port=$port --peer-cid=1 --pick=$1 \
        > /tmp/server 2>&1 &
    server=$!
    listening $port
    (in_mode ./vsock_test --mode=client --control-host=127.0.0.1 --control-port=$port \
        --peer-cid=1 --pick=$1) > /tmp/client 2>&1
    client=$?
    wait $server
    server=$?
    verdict=fail
    if [ $client$server = 00 ] && ! grep -q "^$1 - .*skipped$" /tmp/server /tmp/client; then
        verdict=pass
    fi
    report $verdict "vsock_test $2"
}
# The reader stops at a hang-up even if bytes are left, so the received bytes are not compared.
vsock_perf() {
    in_mode ./vsock_perf --port 3000 > /tmp/server 2>&1 &
    server=$!
    sleep 1
    (in_mode ./vsock_perf --port 3000 --sender 1 --bytes 32M --buf-size 64K) > /tmp/client 2>&1
    client=$?
    wait $server
    server=$?
    verdict=fail
    [ $client$server = 00 ] && grep -q "total bytes sent: 33554432" /tmp/client && verdict=pass
    report $verdict vsock_perf
}
# Both ends have their socket in a map. The copy has to be the same as the file.
socat_copies() {
    in_mode socat -u VSOCK-LISTEN:3001 CREATE:/tmp/copy > /tmp/server 2>&1 &
    server=$!
    sleep 1
    (in_mode socat -u OPEN:/tmp/data VSOCK-CONNECT:1:3001) > /tmp/client 2>&1
    client=$?
    wait $server
    server=$?
    verdict=fail
    [ $client$server = 00 ] && cmp /tmp/data /tmp/copy >> /tmp/server 2>&1 && verdict=pass
    report $verdict "socat"
    rm -f /tmp/copy
}
# The listening end answers with the bytes that it receives.
socat_answers() {
    in_mode socat VSOCK-LISTEN:3002 EXEC:cat > /tmp/server 2>&1 &
    server=$!
    sleep 1
    (in_mode socat -t 10 - VSOCK-CONNECT:1:3002 < /tmp/data > /tmp/copy) 2> /tmp/client
    client=$?
    wait $server
    server=$?
    verdict=fail
    [ $client$server = 00 ] && cmp /tmp/data /tmp/copy >> /tmp/server 2>&1 && verdict=pass
    report $verdict "socat, both directions"
    rm -f /tmp/copy
}
head -c 4194309 /dev/urandom > /tmp/data
./vsock_test --list | tail -n +2 > /tmp/list
for mode in $@; do
    while read -r id name; do case_of vsock_test $id "$name" < /dev/null; done < /tmp/list
    case_of vsock_perf
    case_of socat_copies
    case_of socat_answers
done
echo "@RESULT@ end"
"#;

/// Returns the arguments of a guest that runs all cases.
pub fn all() -> Vec<String> {
    let first = ["2", "all"].iter();
    first.chain(MODES).map(|arg| arg.to_string()).collect()
}

/// Returns the arguments of a guest that runs one case.
pub fn one(case: &OneCase) -> Vec<String> {
    ["1", &case.id, case.mode].map(String::from).to_vec()
}

/// Returns an initramfs that runs the tests which its arguments name.
pub fn initramfs<'a>(
    env: &'a Env,
    root: &'a ToolRoot,
    image: &Image,
    tests: &Path,
    programs: &Programs,
) -> Result<Initramfs<'a>> {
    let mut initramfs = Initramfs::new(
        env,
        root,
        &GUEST_MAIN
            .replace("@RESULT@", RESULT)
            .replace("@AGAIN@", AGAIN),
    );
    initramfs.modules(image)?;
    for program in PROGRAMS {
        initramfs.program(&format!("/oracle/{program}"), &tests.join(program))?;
    }
    initramfs
        .program("/oracle/libpreload.so", &programs.preload)?
        .program("/usr/bin/socat", Path::new("/usr/bin/socat"))?;
    Ok(initramfs)
}
