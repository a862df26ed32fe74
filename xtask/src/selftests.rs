// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's own bpf selftests, reduced to the sockmap ones: all of them would take an hour.
//!
//! `test_progs` is built from a folder of links into the work tree that shows make only the tests
//! wanted and the BPF programs that they include. make keeps its objects in the cache, so a change
//! in one test costs one compilation and a link.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use walkdir::WalkDir;

use crate::build::Image;
use crate::env::{sha256_file, Env, Key};
use crate::initramfs::Initramfs;
use crate::proc;
use crate::toolroot::ToolRoot;
use crate::tree::Tree;

/// Upstream's sockmap tests: what passes with the C version must pass with the Rust one.
pub const UPSTREAM: &[&str] = &[
    "sockmap_basic",
    "sockmap_listen",
    "sockmap_redir",
    "sockmap_strp",
];

/// The names of this series' tests begin with this.
pub const OURS: &str = "vsock_sockmap";

/// The tests of this series.
pub const OUR_TESTS: &[&str] = &[
    "vsock_sockmap_eof",
    "vsock_sockmap_monitor",
    "vsock_sockmap_outside",
    "vsock_sockmap_recv",
    "vsock_sockmap_redir",
    "vsock_sockmap_stall",
    "vsock_sockmap_verdict",
];

/// The helpers of these tests, a file beside them without a test of its own.
const OUR_HELPERS: &str = "vsock_sockmap_helpers";

/// In the kernel.
const SELFTESTS: &str = "tools/testing/selftests/bpf";

/// Where test_progs is in a guest; it looks for its files in its working folder.
const GUEST_DIR: &str = "/selftests";

/// What a guest runs: its first argument is a list of tests, as in `test_progs -a`. Results go
/// through a file, so that the kernel's own lines do not come in between.
pub const GUEST_MAIN: &str = r#"#!/bin/sh
for i in vsock vsock_loopback vsockmon; do modprobe -q $i; done
cd /selftests
./test_progs --no-error-summary -a "$1" > /tmp/results
status=$?
cat /tmp/results
# A socket keeps the module of its transport, so if one is left that shows here. One that was closed
# waits for its peer's answer, at most 8 s.
if grep -q '^vsock ' /proc/modules; then
    for i in $(seq 12); do
        for module in vsockmon vsock_diag vsock_loopback vmw_vsock_virtio_transport_common vsock; do
            rmmod $module 2>/dev/null
        done
        grep -q '^vsock ' /proc/modules || break
        sleep 1
    done
    if grep '^vsock ' /proc/modules; then echo "BUG: a vsock socket is left"; fi
fi
exit $status
"#;

/// Before the number and the exit status of a subtest with allocations that fail, before each line
/// that it printed, and before how many allocations have failed.
const FAULTS_RESULT: &str = "faults:";
const FAULTS_SAID: &str = "faults|";
const FAULTS_COUNT: &str = "faults-in-all:";

/// A function of a shell: from now on allocations fail, $1 of them at most, of those tasks that ask for
/// it and of the workers of the loopback. Which ones, each `interval` says; the kernel's fault injection
/// has a probability too, but without a seed for it at boot that is 1.
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

/// What a guest runs for our subtests with allocations that fail, each in a process of its own. Then
/// some run without. The argument is a seed.
///
/// One of 7 to 46 allocations fails, by the seed and the subtest: always the same would meet the same
/// allocations of similar subtests.
const FAULTS_MAIN: &str = r#"#!/bin/sh
modprobe -q -a vsock vsock_loopback
cd /selftests
seed=$1 lanes=4
# Of all kinds; what /proc/net/protocols says of vsock is always 0. TCP does not try again when it
# has no memory for the last packet of a connection, which stays an orphan then.
sockets() {
    awk '$1 == "sockets:" { n = $3 } $1 == "TCP:" { n -= $5 } END { print n }' /proc/net/sockstat
}
@FAIL@
# Subtests of test $1 from $2 on, with a step.
lane() {
    i=$2
    while :; do
        for attr in failslab fail_page_alloc; do
            echo $((7 + (seed + $1 * 11 + i * 37) % 40)) > /sys/kernel/debug/$attr/interval
        done
        timeout -s KILL 30 env LD_PRELOAD=/selftests/libinmap.so INMAP=faults \
            ./test_progs --no-error-summary -w 9 -n $1/$i > /tmp/log-$1-$i 2>&1
        status=$?
        # There is no such subtest.
        [ $status = 0 ] && ! grep -q "^#$1/" /tmp/log-$1-$i && break
        echo "@RESULT@ $1/$i $status" > /tmp/result-$1-$i
        sed -n '/:FAIL:/b say; /^#[0-9]*\/\|^WATCHDOG:/!d; :say; s/^/@SAID@ /p' /tmp/log-$1-$i \
            >> /tmp/result-$1-$i
        i=$((i + lanes))
    done
}
# The same, of all tests.
all_tests() {
    for test in $(seq @TESTS@); do
        lane $test $1
    done
}
# What TCP keeps of its peers looks like a leak.
echo 1 > /proc/sys/net/ipv4/tcp_no_metrics_save
before=$(sockets)
fail_allocations 1000000
for i in $(seq $lanes); do
    all_tests $i &
done
wait
failed=0
for i in failslab fail_page_alloc; do
    failed=$((failed + 1000000 - $(cat /sys/kernel/debug/$i/times)))
    echo 0 > /sys/kernel/debug/$i/times
done
# One that was closed waits for its peer's answer, at most 8 s.
for i in $(seq 12); do
    [ $(sockets) = $before ] && break
    sleep 1
done
cat /tmp/result-*
echo "@COUNT@ $failed"
if [ $(sockets) != $before ]; then
    # What is in none of these lists is a vsock.
    tail -n +2 /proc/net/unix /proc/net/tcp /proc/net/udp /proc/net/packet
    echo "BUG: $(($(sockets) - before)) sockets are left"
fi
./test_progs --no-error-summary -a 'vsock_sockmap_verdict/verdict*,vsock_sockmap_redir' > /tmp/results
status=$?
cat /tmp/results
exit $status
"#;

/// What make does not need for this. No test here uses the test modules.
const LEFT_OUT: &[&str] = &[
    "LSKELS=",
    "LSKELS_SIGNED=",
    "LSKELS_EXTRA=",
    "LINKED_SKELS=",
    "LIBARENA_SKEL=",
    "LIBARENA_ASAN_SKEL=",
    "TRUNNER_EXTRA_FILES=",
    "TEST_KMODS=",
    "TEST_KMOD_TARGETS=",
    // The programs that bpftool itself has.
    "feature-clang-bpf-co-re=0",
    "SKIP_DOCS=1",
    "SKIP_LLVM=1",
];

/// Which compiler; BPF programs have their own variable.
const COMPILER: &[&str] = &[
    "LLVM=-22",
    "CLANG=clang-22",
    "LLVM_CONFIG=llvm-config-22",
    "LLVM_STRIP=llvm-strip-22",
];

/// Goes up when the way in which test_progs is built changes.
const FORMAT: &str = "1";

/// In the folder that make works in, while it does.
const BUSY: &str = "make-is-running";

/// `test_progs`, built if the cache has none. With an image of the qemu bed it has upstream's
/// tests and ours; their programs need the types of that kernel. Without one it has only ours, for
/// kernels of any kind.
pub fn ensure(env: &Env, root: &ToolRoot, tree: &Tree, image: Option<&Image>) -> Result<PathBuf> {
    let types = tempfile::NamedTempFile::new_in(&env.logs)?.into_temp_path();
    let ours = [OUR_TESTS, &[OUR_HELPERS]].concat();
    let (tests, kind) = match image {
        Some(image) => {
            dump_btf(root, image, &types)?;
            ([UPSTREAM, &ours].concat(), "all")
        }
        None => {
            // make wants a header, but ours includes none.
            fs::write(&types, "")?;
            (ours, "ours")
        }
    };
    let mut key = Key::new()
        .add(FORMAT)
        .add(&root.key)
        .add(&tree.source.key)
        .add(kind)
        .add(sha256_file(&types)?);
    if tree.source.of_user {
        key = key.add(&tree.key);
    }
    for file in tree.files.iter().filter(|file| file.starts_with("tools/")) {
        key = key
            .add(file)
            .add(fs::read(tree.path.join(file)).unwrap_or_default());
    }
    let name = format!("selftests-{}", key.finish());
    let done = env.make_dir(&name, |dir| {
        env.need_space(1, "building the selftests")?;
        let work = env
            .cache
            .join(format!("build-selftests-{kind}-{}", tree.source.key));
        let busy = work.join(BUSY);
        if busy.exists() {
            // make trusts a file that it was writing when it was killed.
            env.remove_dir(&work)?;
        }
        let (source, out) = (work.join("source"), work.join("out"));
        fs::create_dir_all(&out)?;
        reduce(&tree.path, &source, &tests)?;
        let kept_types = work.join("types");
        refresh(&types, &kept_types)?;
        fs::write(&busy, "")?;
        let mut make = root.command(&source.join(SELFTESTS), "make");
        let jobs = std::thread::available_parallelism().map_or(2, |count| count.get());
        make.arg(format!("-j{jobs}")).args(COMPILER).args(LEFT_OUT);
        make.arg(format!("VMLINUX_BTF={}", kept_types.display()));
        if image.is_none() {
            make.arg(format!("VMLINUX_H={}", kept_types.display()));
        }
        make.arg(format!("OUTPUT={}", out.display()))
            .arg(out.join("test_progs"));
        let built = proc::run(env, &format!("build bpf selftests ({kind})"), make);
        fs::remove_file(&busy)?;
        built?;
        fs::copy(out.join("test_progs"), dir.join("test_progs"))
            .context("make did not make test_progs")?;
        Ok(())
    })?;
    Ok(done.join("test_progs"))
}

/// [`FAULTS_MAIN`] as the guest gets it.
pub fn faults_main() -> String {
    FAULTS_MAIN
        .replace("@FAIL@", FAIL_ALLOCATIONS)
        .replace("@TESTS@", &OUR_TESTS.len().to_string())
        .replace("@RESULT@", FAULTS_RESULT)
        .replace("@SAID@", FAULTS_SAID)
        .replace("@COUNT@", FAULTS_COUNT)
}

/// Puts test_progs where [`GUEST_MAIN`] runs it.
pub fn add_to(initramfs: &mut Initramfs, test_progs: &Path) -> Result<()> {
    initramfs.program(&format!("{GUEST_DIR}/test_progs"), test_progs)?;
    Ok(())
}

/// The type information of a kernel, all that its programs depend on.
fn dump_btf(root: &ToolRoot, image: &Image, to: &Path) -> Result<()> {
    let mut objcopy = root.command(Path::new("/"), "llvm-objcopy-22");
    objcopy.args(["-O", "binary", "--only-section=.BTF"]);
    objcopy.arg("--set-section-flags=.BTF=alloc");
    objcopy.arg(image.dir.join("vmlinux")).arg(to);
    proc::output(objcopy)?;
    if fs::metadata(to)?.len() == 0 {
        bail!(
            "kernel {} has no BTF, without which there are no selftests",
            image.flavour.name()
        );
    }
    Ok(())
}

/// Leaves an unchanged file alone, since all programs are built again after a change.
fn refresh(new: &Path, kept: &Path) -> Result<()> {
    if !kept.exists() || sha256_file(new)? != sha256_file(kept)? {
        fs::copy(new, kept)?;
    }
    Ok(())
}

/// Makes `source` look like kernel tree `tree` with these tests only. Everything is a link, but for
/// the folders on the way to the tests.
fn reduce(tree: &Path, source: &Path, tests: &[&str]) -> Result<()> {
    let mut wanted = BTreeMap::new();
    let mut dir = PathBuf::new();
    for part in Path::new(SELFTESTS) {
        link_all(tree, &dir, part.to_str(), &mut wanted)?;
        dir.push(part);
    }
    link_all(tree, &dir, None, &mut wanted)?;
    for folder in ["prog_tests", "progs"] {
        wanted.remove(&dir.join(folder));
        link_all(tree, &dir.join(folder), None, &mut wanted)?;
    }
    let mut programs = BTreeSet::new();
    for test in tests {
        let path = dir.join("prog_tests").join(format!("{test}.c"));
        match fs::read_to_string(tree.join(&path)) {
            Ok(text) => programs.extend(skeletons(&text)),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("the kernel tree has no {}", path.display())
            }
            Err(error) => return Err(error.into()),
        }
    }
    wanted.retain(|path, _| {
        let Ok(inside) = path.strip_prefix(&dir) else {
            return true;
        };
        let is_c = inside.extension().is_some_and(|ext| ext == "c");
        let stem = inside.file_stem().unwrap_or_default().to_string_lossy();
        if inside.starts_with("prog_tests") {
            // tests.h is generated, from the tests that are there.
            let is_wanted = !is_c || tests.contains(&&*stem);
            inside != Path::new("prog_tests/tests.h") && is_wanted
        } else if inside.starts_with("progs") {
            !is_c || programs.contains(&*stem)
        } else {
            // So is this one, from a key that the build makes.
            inside != Path::new("verification_cert.h")
        }
    });
    sync_links(source, &wanted)
}

/// Links to all that is in folder `dir` of `tree`, but for `except`.
fn link_all(
    tree: &Path,
    dir: &Path,
    except: Option<&str>,
    wanted: &mut BTreeMap<PathBuf, PathBuf>,
) -> Result<()> {
    let full = tree.join(dir);
    let entries = fs::read_dir(&full).with_context(|| format!("cannot read {}", full.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if except.is_none_or(|except| name != except) {
            wanted.insert(dir.join(&name), entry.path());
        }
    }
    Ok(())
}

/// Makes the links in `root` those of `wanted` (path to target), and leaves other files alone.
fn sync_links(root: &Path, wanted: &BTreeMap<PathBuf, PathBuf>) -> Result<()> {
    fs::create_dir_all(root)?;
    for entry in WalkDir::new(root) {
        let entry = entry?;
        let path = entry.path();
        if entry.path_is_symlink() {
            let inside = path.strip_prefix(root)?;
            if wanted.get(inside) != Some(&fs::read_link(path)?) {
                fs::remove_file(path)?;
            }
        }
    }
    for (inside, target) in wanted {
        let path = root.join(inside);
        if path.symlink_metadata().is_err() {
            fs::create_dir_all(path.parent().context("a link is in a folder")?)?;
            symlink(target, &path).with_context(|| format!("cannot make {}", path.display()))?;
        }
    }
    Ok(())
}

/// The BPF programs that the skeletons which a test includes are made from.
fn skeletons(test: &str) -> Vec<String> {
    test.lines()
        .filter_map(|line| {
            let name = line.trim().strip_prefix("#include \"")?;
            Some(name.strip_suffix(".skel.h\"")?.to_string())
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Pass,
    Fail,
    Skip,
}

/// A subtest, or a test that has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// `test/subtest`.
    pub name: String,
    pub verdict: Verdict,
    /// What the test said about a failure.
    pub why: Vec<String>,
}

/// The cases in what test_progs printed, in their order. An error if some are missing: its last
/// line tells how many there were.
pub fn parse(log: &str) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    let mut why = Vec::new();
    let mut counted = None;
    for line in log.lines().map(str::trim_end) {
        if let Some(counts) = parse_summary(line) {
            counted = Some(counts);
        } else if let Some((name, verdict)) = parse_result(line) {
            let mut why = std::mem::take(&mut why);
            if verdict != Verdict::Fail {
                why.clear();
            }
            // A test is a case of its own if it has no subtests, or failed outside of them.
            let prefix = format!("{name}/");
            let told = cases.iter().any(|case| {
                case.name.starts_with(&prefix)
                    && (verdict != Verdict::Fail || case.verdict == Verdict::Fail)
            });
            if !told {
                cases.push(Case {
                    name: name.to_string(),
                    verdict,
                    why,
                });
            }
        } else if line.contains(":FAIL:") {
            why.push(line.to_string());
        }
    }
    let Some(counted) = counted else {
        bail!("test_progs did not come to its end");
    };
    let count = |verdict, subtests: bool| {
        let of = cases.iter().filter(|case| case.verdict == verdict);
        of.filter(|case| !subtests || case.name.contains('/'))
            .count()
    };
    let found = Counts {
        passed: count(Verdict::Pass, true),
        skipped: count(Verdict::Skip, false),
        failed: count(Verdict::Fail, true),
    };
    if found != counted {
        bail!("test_progs counted {counted:?}, but its log has {found:?}");
    }
    Ok(cases)
}

/// Skipped ones include tests without subtests, the others do not.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    passed: usize,
    skipped: usize,
    failed: usize,
}

/// `Summary: 1/19 PASSED, 28 SKIPPED, 0/0 FAILED`, where the second number counts subtests.
fn parse_summary(line: &str) -> Option<Counts> {
    let mut counts = line.strip_prefix("Summary: ")?.split(", ");
    let mut next = |what: &str| counts.next()?.strip_suffix(what);
    let (passed, skipped, failed) = (next(" PASSED")?, next(" SKIPPED")?, next(" FAILED")?);
    Some(Counts {
        passed: passed.split_once('/')?.1.parse().ok()?,
        skipped: skipped.parse().ok()?,
        failed: failed.split_once('/')?.1.parse().ok()?,
    })
}

/// `#6/31    test/subtest:OK` or `#6       test:OK (SKIP: 28/47)`.
fn parse_result(line: &str) -> Option<(&str, Verdict)> {
    let (number, rest) = line.strip_prefix('#')?.split_once(' ')?;
    if !number.split('/').all(|part| part.parse::<u32>().is_ok()) {
        return None;
    }
    let rest = rest.split(" (SKIP: ").next().unwrap_or(rest);
    // A name can have colons.
    let (name, result) = rest.trim_start().rsplit_once(':')?;
    let verdict = match result {
        "OK" => Verdict::Pass,
        "FAIL" => Verdict::Fail,
        "SKIP" => Verdict::Skip,
        _ => return None,
    };
    Some((name, verdict))
}

/// What came of the subtests with allocations that fail.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Failed allocations.
    pub faults: usize,
    pub passed: usize,
    /// Failed, as they may then.
    pub errors: usize,
    /// Waited for what does not come without memory, and were ended.
    pub waited: Vec<String>,
    /// Got other bytes than were sent.
    pub wrong: Vec<String>,
}

/// What a subtest calls the comparison of the bytes that it got.
const CONTENT: &[&str] = &[":FAIL:payload ", ":FAIL:byte of the sequence "];

/// What [`FAULTS_MAIN`] printed.
pub fn parse_faults(log: &str) -> Result<Faults> {
    let mut all = Faults::default();
    let mut ended = false;
    // Number, exit status and what was said, of a subtest.
    let mut subtests: Vec<(&str, &str, Vec<&str>)> = Vec::new();
    for line in log.lines().map(str::trim_end) {
        if let Some(result) = line.strip_prefix(FAULTS_RESULT) {
            let Some((number, status)) = result.trim().split_once(' ') else {
                bail!("cannot make sense of {line:?}");
            };
            subtests.push((number, status, Vec::new()));
        } else if let (Some(said), Some((_, _, lines))) =
            (line.strip_prefix(FAULTS_SAID), subtests.last_mut())
        {
            lines.push(said.trim_start());
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
    for (number, status, lines) in subtests {
        let name = lines.iter().find_map(|line| match parse_result(line) {
            Some((name, _)) if name.contains('/') => Some(name),
            _ => line
                .strip_prefix("WATCHDOG: test case ")?
                .split(" executes for ")
                .next(),
        });
        let name = name.map_or_else(|| format!("{OURS}/{number}"), str::to_string);
        // A subtest goes on when it could not send, and then compares with what it has not sent.
        let first = lines.iter().find(|line| line.contains(":FAIL:"));
        let wrong = first.filter(|line| CONTENT.iter().any(|name| line.contains(name)));
        if let Some(wrong) = wrong {
            all.wrong.push(format!("{name}: {wrong}"));
        } else if status == "0" {
            all.passed += 1;
        } else if status == "137" || lines.iter().any(|line| line.starts_with("WATCHDOG: ")) {
            all.waited.push(name);
        } else {
            all.errors += 1;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
#1/1     sockmap_basic/sockmap create_update_free:OK
#1/2     sockmap_basic/sockmap copy:SKIP
#1       sockmap_basic:OK (SKIP: 1/2)
test_pass:PASS:open_and_load 0 nsec
expect_bytes:FAIL:recv unexpected recv: actual -1 <= expected 0
#2/1     vsock_sockmap_redir/redirect: unix dgram to vsock stream, egress:FAIL
#2/2     vsock_sockmap_redir/redirect small writes of tcp:OK
#2       vsock_sockmap_redir:FAIL
#3       lonely:OK
#4       skipped:SKIP
Summary: 2/2 PASSED, 2 SKIPPED, 1/1 FAILED
";

    fn names(cases: &[Case], verdict: Verdict) -> Vec<&str> {
        let of = cases.iter().filter(|case| case.verdict == verdict);
        of.map(|case| case.name.as_str()).collect()
    }

    #[test]
    fn each_case_with_its_verdict() {
        let cases = parse(LOG).unwrap();
        assert_eq!(
            names(&cases, Verdict::Pass),
            [
                "sockmap_basic/sockmap create_update_free",
                "vsock_sockmap_redir/redirect small writes of tcp",
                "lonely"
            ]
        );
        assert_eq!(
            names(&cases, Verdict::Skip),
            ["sockmap_basic/sockmap copy", "skipped"]
        );
        assert_eq!(
            names(&cases, Verdict::Fail),
            ["vsock_sockmap_redir/redirect: unix dgram to vsock stream, egress"]
        );
        for case in &cases {
            assert_eq!(case.why.len(), usize::from(case.verdict == Verdict::Fail));
        }
    }

    #[test]
    fn failure_outside_of_the_subtests() {
        let log = "#1/1  a/b:OK\nserial_test_a:FAIL:attach\n#1  a:FAIL\n\
                   Summary: 0/1 PASSED, 0 SKIPPED, 1/0 FAILED\n";
        let cases = parse(log).unwrap();
        assert_eq!(names(&cases, Verdict::Fail), ["a"]);
        assert_eq!(names(&cases, Verdict::Pass), ["a/b"]);
    }

    #[test]
    fn what_came_of_the_faults() {
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
        assert_eq!(parse_faults(log).unwrap(), wanted);
        assert!(parse_faults(log.trim_end_matches("faults-in-all: 7\n")).is_err());
        assert!(parse_faults(&log.replace("all: 7", "all: 0")).is_err());
        assert!(parse_faults("faults-in-all: 7\n").is_err());
    }

    #[test]
    fn lost_lines_are_an_error() {
        let lost = LOG.replace(
            "#2/2     vsock_sockmap_redir/redirect small writes of tcp:OK\n",
            "",
        );
        assert!(parse(&lost).unwrap_err().to_string().contains("counted"));
        let cut = &LOG[..LOG.find("#3").unwrap()];
        assert!(parse(cut).unwrap_err().to_string().contains("its end"));
    }

    #[test]
    fn other_lines_are_no_results() {
        for line in [
            "# a:OK",
            "#1 a",
            "#x a:OK",
            "a:OK",
            "#1/x a/b:OK",
            "#1 a:PASS",
        ] {
            assert_eq!(parse_result(line), None, "{line}");
        }
    }

    #[test]
    fn programs_of_a_test() {
        let test = "#include \"test_progs.h\"\n#include \"bpf_iter_sockmap.skel.h\"\n\
                    #include \"test_sockmap_redir.skel.h\"\n";
        assert_eq!(skeletons(test), ["bpf_iter_sockmap", "test_sockmap_redir"]);
    }

    /// A kernel tree with just the folders that count.
    fn tree(dir: &Path) {
        let mut files = vec![
            ("Makefile".to_string(), ""),
            ("tools/lib/bpf/libbpf.c".to_string(), ""),
            ("tools/testing/selftests/lib.mk".to_string(), ""),
        ];
        for file in ["Makefile", "verification_cert.h", "prog_tests/tests.h"] {
            files.push((format!("{SELFTESTS}/{file}"), ""));
        }
        for file in ["prog_tests/other.c", "progs/other.c", "progs/bpf_misc.h"] {
            files.push((format!("{SELFTESTS}/{file}"), ""));
        }
        for test in UPSTREAM.iter().chain(OUR_TESTS) {
            files.push((
                format!("{SELFTESTS}/prog_tests/{test}.c"),
                "#include \"mine.skel.h\"\n",
            ));
        }
        files.push((format!("{SELFTESTS}/progs/mine.c"), ""));
        for (path, text) in files {
            let path = dir.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn make_sees_only_our_tests() {
        let dir = tempfile::tempdir().unwrap();
        let (kernel, source) = (dir.path().join("kernel"), dir.path().join("source"));
        tree(&kernel);
        reduce(&kernel, &source, UPSTREAM).unwrap();
        let bpf = source.join(SELFTESTS);
        for there in [
            "Makefile",
            "prog_tests/sockmap_redir.c",
            "progs/mine.c",
            "progs/bpf_misc.h",
        ] {
            assert!(bpf.join(there).exists(), "{there}");
        }
        for gone in [
            "verification_cert.h",
            "prog_tests/tests.h",
            "prog_tests/vsock_sockmap_recv.c",
            "prog_tests/other.c",
            "progs/other.c",
        ] {
            assert!(!bpf.join(gone).exists(), "{gone}");
        }
        assert!(source.join("tools/lib/bpf/libbpf.c").exists());
        assert!(!bpf.is_symlink() && !bpf.join("progs").is_symlink());

        // A second time: what make wrote stays, a test that is gone goes.
        fs::write(bpf.join("prog_tests/tests.h"), "made").unwrap();
        fs::remove_file(kernel.join(SELFTESTS).join("progs/bpf_misc.h")).unwrap();
        reduce(&kernel, &source, UPSTREAM).unwrap();
        assert!(bpf.join("prog_tests/tests.h").exists());
        assert!(bpf.join("progs/bpf_misc.h").symlink_metadata().is_err());
    }

    #[test]
    fn missing_test_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let kernel = dir.path().join("kernel");
        tree(&kernel);
        let gone = format!("{SELFTESTS}/prog_tests/sockmap_redir.c");
        fs::remove_file(kernel.join(&gone)).unwrap();
        let error = reduce(&kernel, &dir.path().join("source"), UPSTREAM).unwrap_err();
        assert!(error.to_string().contains(&gone), "{error}");
    }
}
