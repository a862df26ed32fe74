// SPDX-License-Identifier: GPL-2.0-only
//! Our subtests with allocations that fail.

use anyhow::{bail, Result};

use super::names::{OURS, OUR_TESTS};
use super::results::parse_result;

/// The mark before the number and the exit status of a subtest.
const FAULTS_RESULT: &str = "faults:";
/// The mark before each line that a subtest printed.
const FAULTS_SAID: &str = "faults|";
/// The mark before the number of allocations that failed.
const FAULTS_COUNT: &str = "faults-in-all:";

/// A shell function that makes allocations fail, at most $1 of them. Only the tasks that ask for it
/// and the workers of the loopback are concerned. Each time `interval` allocations have passed, one
/// fails. The kernel could also choose them at random, but takes no seed for that, and a run could
/// not be repeated.
pub const FAIL_ALLOCATIONS: &str = r#"fail_allocations() {
    for attr in failslab fail_page_alloc; do
        dir=/sys/kernel/debug/$attr
        [ -d $dir ] || exit 1
        echo 0 > $dir/verbose
        echo Y > $dir/task-filter
        echo N > $dir/ignore-gfp-wait
        echo 100 > $dir/probability
        echo $1 > $dir/times
    done
    # Not page tables, which User-Mode Linux does not survive.
    echo 1 > /sys/kernel/debug/fail_page_alloc/min-order
    for task in /proc/[0-9]*; do
        ! grep -q '^kworker' $task/comm || echo 1 > $task/make-it-fail
    done
}"#;

/// The main program of a guest for our subtests with allocations that fail. Each subtest has its
/// own process. At the end some subtests run without failures. The argument is a seed.
///
/// One in 7 to 46 allocations fails, depending on the seed and the subtest. With the same number
/// for all, similar subtests would fail at the same allocations.
const FAULTS_MAIN: &str = r#"#!/bin/sh
modprobe -q -a vsock vsock_loopback
cd /selftests
seed=$1 jobs=4
# Counts sockets of all kinds, as /proc/net/protocols has always 0 for vsock. TCP's orphans do not
# count: without memory for the last packet of a connection, TCP does not retry.
sockets() {
    awk '$1 == "sockets:" { n = $3 } $1 == "TCP:" { n -= $5 } END { print n }' /proc/net/sockstat
}
@FAIL@
# Runs subtest $2 of test $1, and from there on each one whose number is `jobs` higher.
run_from() {
    i=$2
    while :; do
        for attr in failslab fail_page_alloc; do
            echo $((7 + (seed + $1 * 11 + i * 37) % 40)) > /sys/kernel/debug/$attr/interval
        done
        timeout -s KILL 30 env LD_PRELOAD=/selftests/libpreload.so PRELOAD_MODE=faults \
            ./test_progs --no-error-summary -w 9 -n $1/$i > /tmp/log-$1-$i 2>&1
        status=$?
        # No line of a subtest: the number is too high.
        [ $status = 0 ] && ! grep -q "^#$1/" /tmp/log-$1-$i && break
        echo "@RESULT@ $1/$i $status" > /tmp/result-$1-$i
        sed -n '/:FAIL:/b say; /^#[0-9]*\/\|^WATCHDOG:/!d; :say; s/^/@SAID@ /p' /tmp/log-$1-$i \
            >> /tmp/result-$1-$i
        i=$((i + jobs))
    done
}
# Runs every `jobs`th subtest of each test, beginning with subtest $1.
run_all() {
    for test in $(seq @TESTS@); do
        run_from $test $1
    done
}
# TCP's cache of metrics looks like a leak.
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save
before=$(sockets)
fail_allocations 1000000
for i in $(seq $jobs); do
    run_all $i &
done
wait
failed=0
for i in failslab fail_page_alloc; do
    failed=$((failed + 1000000 - $(cat /sys/kernel/debug/$i/times)))
    echo 0 > /sys/kernel/debug/$i/times
done
# A closed socket waits for the answer of its peer, at most 8 s.
for i in $(seq 12); do
    [ $(sockets) = $before ] && break
    sleep 1
done
cat /tmp/result-*
echo "@COUNT@ $failed"
if [ $(sockets) != $before ]; then
    # A socket that is in none of these lists is a vsock.
    tail -n +2 /proc/net/unix /proc/net/tcp /proc/net/udp /proc/net/packet
    echo "BUG: $(($(sockets) - before)) sockets are left"
fi
./test_progs --no-error-summary -a 'vsock_sockmap_verdict/verdict*,vsock_sockmap_redir' > /tmp/results
status=$?
cat /tmp/results
exit $status
"#;

/// Returns the main program of the guest.
pub fn main() -> String {
    FAULTS_MAIN
        .replace("@FAIL@", FAIL_ALLOCATIONS)
        .replace("@TESTS@", &OUR_TESTS.len().to_string())
        .replace("@RESULT@", FAULTS_RESULT)
        .replace("@SAID@", FAULTS_SAID)
        .replace("@COUNT@", FAULTS_COUNT)
}

/// The results of the subtests with allocations that fail.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// How many allocations failed.
    pub faults: usize,
    /// How many subtests passed.
    pub passed: usize,
    /// How many subtests failed, as they may without memory.
    pub errors: usize,
    /// Subtests that waited for an event that does not come without memory, until they were killed.
    pub waited: Vec<String>,
    /// Subtests that received other bytes than were sent.
    pub wrong: Vec<String>,
}

/// The names under which a subtest compares the bytes that it received.
const CONTENT: &[&str] = &[":FAIL:payload ", ":FAIL:byte of the sequence "];

/// A subtest in the log.
struct Subtest<'a> {
    number: &'a str,
    status: &'a str,
    lines: Vec<&'a str>,
}

/// Returns the results in the log of a guest. It is an error if the guest did not come to its end,
/// or if no allocation failed.
pub fn parse(log: &str) -> Result<Faults> {
    let mut all = Faults::default();
    let mut ended = false;
    let mut subtests: Vec<Subtest> = Vec::new();
    for line in log.lines().map(str::trim_end) {
        if let Some(result) = line.strip_prefix(FAULTS_RESULT) {
            let Some((number, status)) = result.trim().split_once(' ') else {
                bail!("cannot understand {line:?}");
            };
            subtests.push(Subtest {
                number,
                status,
                lines: Vec::new(),
            });
        } else if let (Some(said), Some(subtest)) =
            (line.strip_prefix(FAULTS_SAID), subtests.last_mut())
        {
            subtest.lines.push(said.trim_start());
        } else if let Some(count) = line.strip_prefix(FAULTS_COUNT) {
            all.faults = count.trim().parse()?;
            ended = true;
        }
    }
    if !ended || subtests.is_empty() || all.faults == 0 {
        bail!(
            "{} subtests ran, and {} allocations failed",
            subtests.len(),
            all.faults
        );
    }
    for subtest in subtests {
        all.add(&subtest);
    }
    Ok(all)
}

impl Faults {
    fn add(&mut self, subtest: &Subtest) {
        let Subtest { status, lines, .. } = subtest;
        // A subtest that could not send goes on, and compares with bytes that it has not sent. So
        // only the first failure counts.
        let first = lines.iter().find(|line| line.contains(":FAIL:"));
        let wrong = first.filter(|line| CONTENT.iter().any(|name| line.contains(name)));
        if let Some(wrong) = wrong {
            self.wrong.push(format!("{}: {wrong}", subtest.name()));
        } else if *status == "0" {
            self.passed += 1;
        } else if *status == "137" || lines.iter().any(|line| line.starts_with("WATCHDOG: ")) {
            self.waited.push(subtest.name());
        } else {
            self.errors += 1;
        }
    }
}

impl Subtest<'_> {
    fn name(&self) -> String {
        let name = self.lines.iter().find_map(|line| match parse_result(line) {
            Some((name, _)) if name.contains('/') => Some(name),
            _ => line
                .strip_prefix("WATCHDOG: test case ")?
                .split(" executes for ")
                .next(),
        });
        name.map_or_else(|| format!("{OURS}/{}", self.number), str::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_subtests() {
        let log = "\
faults: 1/1 0
faults| #1/1     vsock_sockmap_verdict/verdict: stream: pass:OK
faults| Summary: 1/1 PASSED, 0 SKIPPED, 0/0 FAILED
faults: 1/2 1
faults| test_drop:FAIL:383
faults| expect_record:FAIL:payload unexpected memory mismatch
faults| #1/2     vsock_sockmap_verdict/verdict: stream: drop:FAIL
[    1.0] noise
faults: 1/3 139
faults| WATCHDOG: test case vsock_sockmap_verdict/a: b executes for 8 seconds, terminating with SIGSEGV
faults: 1/4 1
faults| expect_record:FAIL:payload unexpected payload: actual 1 != expected 0
faults| #1/4     vsock_sockmap_verdict/c:FAIL
faults-in-all: 7
";
        let wanted = Faults {
            faults: 7,
            passed: 1,
            errors: 1,
            waited: vec!["vsock_sockmap_verdict/a: b".to_string()],
            wrong: vec![
                "vsock_sockmap_verdict/c: expect_record:FAIL:payload unexpected payload: actual 1 != \
                 expected 0"
                    .to_string(),
            ],
        };
        assert_eq!(parse(log).unwrap(), wanted);
        assert!(parse(log.trim_end_matches("faults-in-all: 7\n")).is_err());
        assert!(parse(&log.replace("all: 7", "all: 0")).is_err());
        assert!(parse("faults-in-all: 7\n").is_err());
    }
}
