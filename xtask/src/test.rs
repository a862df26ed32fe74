// SPDX-License-Identifier: GPL-2.0-only
//! `test`: the kit's unit tests, KUnit, and the sockmap selftests.
//!
//! On the um bed, with KASAN and the other debugging options, and the Rust version: KUnit and our
//! selftest. On the qemu bed, with lockdep: upstream's sockmap selftests and ours, once with each
//! version, side by side. What passes with C has to pass with Rust.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::boot::{Boot, Outcome, System};
use crate::build::{build, Bed, Flavour, Image, Sockmap};
use crate::env::Env;
use crate::initramfs::Initramfs;
use crate::oracle;
use crate::proc;
use crate::programs::{self, Programs};
use crate::selftests::{self, Case, Verdict, OURS, OUR_TESTS, UPSTREAM};
use crate::stress;
use crate::toolroot::ToolRoot;
use crate::verbs::prepare_tree;
use crate::vmtest;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TestBed {
    Um,
    Qemu,
}

#[derive(clap::Args)]
pub struct Args {
    /// Only on this bed, and without the kit's own tests, vsock_test and the stress program
    #[arg(long, value_enum)]
    bed: Option<TestBed>,
    /// Only the cases with this in their name. `vmtest` instead runs upstream's vmtest.sh, which
    /// takes most of an hour, and `oracle` runs vsock_test, vsock_perf and socat with both versions,
    /// each case in a guest of its own
    filter: Option<String>,
}

/// The KUnit suite of the series.
const KUNIT_SUITE: &str = "vsock_sockmap_credit";

/// What the oracle runs; a filter that is in none of these names leaves it out.
const ORACLE: &[&str] = &["vsock_test", "vsock_perf", "socat"];

/// The stress program, without and with allocations that fail.
const STRESS: &[&str] = &["stress", "stress with faults"];
const STRESS_SECONDS: u64 = 60;

/// Our selftests, in error paths.
const FAULTS: &str = "selftests with allocations that fail";

/// Upstream cases that fail or are skipped with both versions, and why.
const KNOWN: &[(&str, &str)] = &[];

/// A UML kernel runs at native speed, an emulated one does not.
const UM_TIMEOUT: Duration = Duration::from_secs(180);
const ORACLE_TIMEOUT: Duration = Duration::from_secs(600);
const ONE_CASE_TIMEOUT: Duration = Duration::from_secs(80);
const QEMU_TIMEOUT: Duration = Duration::from_secs(900);

/// Counts, and says each case.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn say(&mut self, verdict: Verdict, area: &str, name: &str, why: &str) {
        let word = match verdict {
            Verdict::Pass => {
                self.passed += 1;
                "ok  "
            }
            Verdict::Fail => {
                self.failed += 1;
                "FAIL"
            }
            Verdict::Skip => {
                self.skipped += 1;
                "skip"
            }
        };
        let why = if why.is_empty() {
            String::new()
        } else {
            format!("  ({why})")
        };
        println!("{word} {area}: {name}{why}");
    }

    /// Prints the closing line. A failure, or no test at all, ends the program.
    fn close(&self) -> Result<()> {
        let skipped = match self.skipped {
            0 => String::new(),
            skipped => format!(", {skipped} skipped"),
        };
        println!("{} passed, {} failed{skipped}", self.passed, self.failed);
        if self.failed > 0 || self.passed == 0 {
            // The line above says it all.
            std::process::exit(1);
        }
        Ok(())
    }

    /// What is not a case of its own but must hold.
    fn must(&mut self, area: &str, name: &str, result: Result<()>) {
        match result {
            Ok(()) => self.say(Verdict::Pass, area, name, ""),
            Err(error) => self.say(Verdict::Fail, area, name, &format!("{error:#}")),
        }
    }
}

pub fn run(env: &Env, args: Args) -> Result<()> {
    let filter = args.filter.as_deref();
    if filter == Some("vmtest") {
        let mut tally = Tally::default();
        for case in vmtest::run(env)? {
            say_ours(&mut tally, "vmtest", &case);
        }
        return tally.close();
    }
    if filter == Some("oracle") {
        let mut tally = Tally::default();
        oracle_of_both(env, &mut tally)?;
        return tally.close();
    }
    let wants = |bed| args.bed.is_none_or(|only| only == bed);

    let mut tally = Tally::default();
    if args.bed.is_none() {
        kit(env, filter, &mut tally)?;
    }
    // All that needs the work tree comes first: another run may have it while this one boots.
    let (root, tree) = prepare_tree(env)?;
    let mut qemu_guests = Vec::new();
    if wants(TestBed::Qemu) {
        for sockmap in [Sockmap::C, Sockmap::Rust] {
            let image = build(env, &root, &tree, debug(Bed::Qemu, sockmap))?;
            let test_progs = selftests::ensure(env, &root, &tree, Some(&image))?;
            qemu_guests.push(Guest { image, test_progs });
        }
    }
    let mut um_guest = None;
    if wants(TestBed::Um) {
        let image = build(env, &root, &tree, debug(Bed::Um, Sockmap::Rust))?;
        let test_progs = selftests::ensure(env, &root, &tree, None)?;
        um_guest = Some(Guest { image, test_progs });
    }
    // A bed by itself is for the quick loop, so these are left out there, unless by name.
    let wants_any = |names: &[&str]| match filter {
        Some(filter) => names.iter().any(|name| name.contains(filter)),
        None => args.bed.is_none(),
    };
    let mut programs = None;
    let mut vsock_tests = None;
    if um_guest.is_some() && wants_any(&[ORACLE, STRESS, &[FAULTS]].concat()) {
        vsock_tests = Some(oracle::ensure(env, &root, &tree)?);
        programs = Some(programs::build(env, &root)?);
    }
    drop(tree);

    if let Some(guest) = &um_guest {
        um(env, &root, guest, filter, &mut tally)?;
        if let (Some(tests), Some(programs)) = (&vsock_tests, &programs) {
            if wants_any(ORACLE) {
                um_oracle(env, &root, &guest.image, tests, programs, &mut tally)?;
            }
            if wants_any(&[FAULTS]) {
                let Guest { image, test_progs } = guest;
                let seed = stress::new_seed();
                let result = stress::selftests_on(env, &root, image, programs, test_progs, seed);
                tally.must("um rust", FAULTS, result);
            }
            for (name, faults) in [(STRESS[0], false), (STRESS[1], true)] {
                if wants_any(&[name]) {
                    let args = stress::Args {
                        seed: Some(stress::new_seed()),
                        time: STRESS_SECONDS,
                        faults,
                        selftests: false,
                    };
                    let result = stress::run_on(env, &root, &guest.image, programs, &args);
                    tally.must("um rust", name, result);
                }
            }
        }
    }
    if let [c, rust] = &qemu_guests[..] {
        qemu(env, &root, [c, rust], filter, &mut tally)?;
    }
    tally.close()
}

/// The unit tests of the kit, by cargo.
fn kit(env: &Env, filter: Option<&str>, tally: &mut Tally) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(&env.repo);
    command.args(["test", "--locked", "--quiet", "-p", "xtask"]);
    command.args(["--color", "never"]);
    command.args(["--", "--format", "pretty"]);
    command.args(filter);
    let mut cases = Vec::new();
    let mut output = String::new();
    let status = proc::lines(command, |line| {
        cases.extend(cargo_case(line));
        output.push_str(line);
        output.push('\n');
    })
    .context("cargo test did not run")?;
    for (name, verdict) in &cases {
        tally.say(*verdict, "kit", name, "");
    }
    let failed = cases.iter().any(|(_, verdict)| *verdict == Verdict::Fail);
    if !status.success() && !failed {
        tally.say(Verdict::Fail, "kit", "cargo test", output.trim());
    }
    Ok(())
}

/// A case in what `cargo test` prints.
fn cargo_case(line: &str) -> Option<(String, Verdict)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let verdict = match result.trim() {
        "ok" => Verdict::Pass,
        "FAILED" => Verdict::Fail,
        "ignored" => Verdict::Skip,
        _ => return None,
    };
    Some((name.to_string(), verdict))
}

/// The argument for `test_progs -a`: the tests by name, or else the subtests in them.
fn select(tests: &[&str], filter: Option<&str>) -> String {
    let Some(filter) = filter else {
        return tests.join(",");
    };
    let named: Vec<&str> = tests
        .iter()
        .copied()
        .filter(|test| test.contains(filter))
        .collect();
    if !named.is_empty() {
        return named.join(",");
    }
    let subtests = tests.iter().map(|test| format!("{test}/*{filter}*"));
    subtests.collect::<Vec<_>>().join(",")
}

/// A kernel, and the tests that run on it.
struct Guest {
    image: Image,
    test_progs: PathBuf,
}

/// Boots a kernel with test_progs, and returns the cases.
fn boot(
    env: &Env,
    root: &ToolRoot,
    guest: &Guest,
    tests: &str,
) -> Result<(Outcome, Result<Vec<Case>>)> {
    let Guest { image, test_progs } = guest;
    let mut initramfs = Initramfs::new(env, root, selftests::GUEST_MAIN);
    selftests::add_to(&mut initramfs, test_progs)?;
    initramfs.modules(image)?.leak_check();
    let archive = initramfs.build(image)?;

    let args = [tests.to_string()];
    let mut boot = Boot::new(image, System::Initramfs(&archive));
    boot.args = &args;
    boot.timeout = Some(match image.flavour.bed {
        Bed::Qemu => QEMU_TIMEOUT,
        Bed::Um | Bed::PairHost => UM_TIMEOUT,
    });
    let name = image.flavour.name().replace(' ', "-");
    let step = proc::Step::new(&format!("test on {}", image.flavour.name()));
    let outcome = boot.run(env, root, &name)?;
    step.done();
    let cases = selftests::parse(&outcome.log);
    Ok((outcome, cases))
}

fn um(
    env: &Env,
    root: &ToolRoot,
    guest: &Guest,
    filter: Option<&str>,
    tally: &mut Tally,
) -> Result<()> {
    let area = "um rust";
    let (outcome, cases) = boot(env, root, guest, &select(OUR_TESTS, filter))?;

    let kunit = kunit_cases(&outcome.log);
    for (name, verdict) in &kunit {
        if filter.is_none_or(|filter| name.contains(filter)) {
            tally.say(*verdict, "um kunit", name, "");
        }
    }
    if !kunit.iter().any(|(name, _)| name.starts_with(KUNIT_SUITE)) {
        tally.say(Verdict::Fail, "um kunit", KUNIT_SUITE, "did not run");
    }
    match cases {
        Ok(cases) => cases.iter().for_each(|case| say_ours(tally, area, case)),
        Err(error) => tally.must(area, OURS, Err(error)),
    }
    tally.must(area, "the kernel's log is clean", outcome.clean());
    Ok(())
}

/// Upstream's vsock tests in no map, in a map, and under a verdict that passes everything.
fn um_oracle(
    env: &Env,
    root: &ToolRoot,
    image: &Image,
    tests: &Path,
    programs: &Programs,
    tally: &mut Tally,
) -> Result<()> {
    let area = "um oracle";
    let mut initramfs = oracle::initramfs(env, root, image, tests, programs)?;
    let archive = initramfs.leak_check().build(image)?;
    let args = oracle::all();
    let mut boot = Boot::new(image, System::Initramfs(&archive));
    boot.args = &args;
    boot.timeout = Some(ORACLE_TIMEOUT);
    let step = proc::Step::new("vsock_test in no map, in a map, and with a verdict that passes");
    let outcome = boot.run(env, root, "um-oracle")?;
    step.done();
    match oracle::parse(&outcome.log) {
        Ok(cases) => {
            for case in &cases {
                tally.say(case.verdict, area, &case.name, &case.why.join("; "));
            }
        }
        Err(error) => tally.must(area, "vsock_test", Err(error)),
    }
    tally.must(area, "the kernel's log is clean", outcome.clean());
    Ok(())
}

/// The cases of the oracle with both versions. A guest of its own for each, since with C some leave a
/// task that cannot be killed.
fn oracle_of_both(env: &Env, tally: &mut Tally) -> Result<()> {
    let (root, tree) = prepare_tree(env)?;
    let mut images = Vec::new();
    for sockmap in [Sockmap::C, Sockmap::Rust] {
        let flavour = Flavour {
            debug: false,
            ..debug(Bed::Um, sockmap)
        };
        images.push(build(env, &root, &tree, flavour)?);
    }
    let tests = oracle::ensure(env, &root, &tree)?;
    let programs = programs::build(env, &root)?;
    drop(tree);

    let cases = oracle::cases(&root, &tests)?;
    let mut results = Vec::new();
    for image in &images {
        let archive = oracle::initramfs(env, &root, image, &tests, &programs)?.build(image)?;
        let step = proc::Step::new(&format!(
            "{} cases on {}",
            cases.len(),
            image.flavour.name()
        ));
        let mut of_image = Vec::new();
        for case in &cases {
            let args = oracle::one(case);
            let mut boot = Boot::new(image, System::Initramfs(&archive));
            boot.args = &args;
            boot.timeout = Some(ONE_CASE_TIMEOUT);
            let name = format!("{}-{}-{}", image.flavour.name(), case.mode, case.id);
            let outcome = boot.run(env, &root, &name.replace(' ', "-"))?;
            of_image.push(oracle::parse_one(case, &outcome));
        }
        step.done();
        results.push(of_image);
    }
    side_by_side(tally, "um", [&results[0], &results[1]], |name| {
        let mode = name.split(':').next().unwrap_or(name);
        format!("oracle: {mode}")
    });
    Ok(())
}

/// A case of ours with the Rust version: nothing may be skipped.
fn say_ours(tally: &mut Tally, area: &str, case: &Case) {
    match case.verdict {
        Verdict::Skip => tally.say(Verdict::Fail, area, &case.name, "was skipped"),
        verdict => tally.say(verdict, area, &case.name, &case.why.join("; ")),
    }
}

/// `guests` are those of the C and the Rust version.
fn qemu(
    env: &Env,
    root: &ToolRoot,
    guests: [&Guest; 2],
    filter: Option<&str>,
    tally: &mut Tally,
) -> Result<()> {
    let tests = select(&[UPSTREAM, OUR_TESTS].concat(), filter);
    let mut results = Vec::new();
    for guest in guests {
        let area = guest.image.flavour.name();
        let (outcome, cases) = boot(env, root, guest, &tests)?;
        tally.must(&area, "the kernel's log is clean", outcome.clean());
        match cases {
            Ok(cases) => results.push(cases),
            Err(error) => {
                tally.must(&area, "test_progs", Err(error));
                results.push(Vec::new());
            }
        }
    }
    side_by_side(tally, "qemu", [&results[0], &results[1]], area_of);
    Ok(())
}

/// The cases of the C and the Rust version, and how many passed in each area.
fn side_by_side(
    tally: &mut Tally,
    bed: &str,
    [c, rust]: [&[Case]; 2],
    area_of: impl Fn(&str) -> String,
) {
    let rust: BTreeMap<&str, &Case> = rust.iter().map(|case| (&*case.name, case)).collect();
    let c_names: BTreeMap<&str, &Case> = c.iter().map(|case| (&*case.name, case)).collect();
    println!("case by case, C / Rust:");
    let mut areas: BTreeMap<String, [usize; 3]> = BTreeMap::new();
    let mut row = |tally: &mut Tally, c: Option<&Case>, rust: Option<&Case>| {
        compare(tally, bed, c, rust);
        let passed = |case: Option<&Case>| case.is_some_and(|case| case.verdict == Verdict::Pass);
        if let Some(case) = c.or(rust) {
            let counts = areas.entry(area_of(&case.name)).or_default();
            counts[0] += 1;
            counts[1] += usize::from(passed(c));
            counts[2] += usize::from(passed(rust));
        }
    };
    for case in c {
        row(tally, Some(case), rust.get(&*case.name).copied());
    }
    for case in rust.values() {
        if !c_names.contains_key(&*case.name) {
            row(tally, None, Some(case));
        }
    }
    println!("{:<44}{:>6}{:>8}{:>8}", "area", "cases", "C", "Rust");
    for (area, [cases, c, rust]) in &areas {
        println!("{area:<44}{cases:>6}{c:>8}{rust:>8}");
    }
}

/// What cases are summed up by: the test, and for ours what it is about.
fn area_of(name: &str) -> String {
    match name.split_once('/') {
        Some((test, subtest)) if test.starts_with(OURS) => {
            let about = subtest.split(':').next().unwrap_or(subtest);
            format!("{test}: {about}")
        }
        Some((test, _)) => test.to_string(),
        None => name.to_string(),
    }
}

/// One row of the table. The two kernels' results make one case: it passes if Rust's does.
fn compare(tally: &mut Tally, bed: &str, c: Option<&Case>, rust: Option<&Case>) {
    let Some(name) = c.or(rust).map(|case| &*case.name) else {
        return;
    };
    let verdict = |case: Option<&Case>| case.map(|case| case.verdict);
    let word = |case: Option<&Case>| match verdict(case) {
        Some(Verdict::Pass) => "pass",
        Some(Verdict::Fail) => "FAIL",
        Some(Verdict::Skip) => "skip",
        None => "absent",
    };
    let area = format!("{bed} {:>4} / {:<4}", word(c), word(rust));
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let ours = name.starts_with(OURS);
    let (result, why) = match (verdict(c), verdict(rust)) {
        // Ours must not fail with C either: what C cannot do is skipped there.
        (Some(Verdict::Fail), _) if ours => {
            (Verdict::Fail, c.map_or(String::new(), |c| c.why.join("; ")))
        }
        (_, Some(Verdict::Pass)) => (Verdict::Pass, String::new()),
        (Some(Verdict::Fail | Verdict::Skip), Some(Verdict::Fail | Verdict::Skip))
            if known.is_some() && !ours =>
        {
            let reason = known.map_or("", |(_, reason)| reason);
            (Verdict::Skip, format!("both: {reason}"))
        }
        (_, rust_verdict) => {
            let why = match rust_verdict {
                None => "did not run".to_string(),
                _ => rust.map_or(String::new(), |case| case.why.join("; ")),
            };
            (Verdict::Fail, why)
        }
    };
    tally.say(result, &area, name, &why);
}

fn debug(bed: Bed, sockmap: Sockmap) -> Flavour {
    Flavour {
        bed,
        sockmap,
        debug: true,
    }
}

/// `suite/case` and its verdict for all KUnit suites in a kernel log.
fn kunit_cases(log: &str) -> Vec<(String, Verdict)> {
    let mut cases = Vec::new();
    let mut suite = String::new();
    for line in log.lines() {
        // With printk times: "[    0.1]     ok 1 name".
        let line = match line
            .strip_prefix('[')
            .and_then(|line| line.split_once("] "))
        {
            Some((_, line)) => line,
            None => line,
        };
        if let Some(name) = line.strip_prefix("    # Subtest: ") {
            suite = name.trim().to_string();
        } else if let Some(result) = line.strip_prefix("    ") {
            let (verdict, rest) = if let Some(rest) = result.strip_prefix("ok ") {
                (Verdict::Pass, rest)
            } else if let Some(rest) = result.strip_prefix("not ok ") {
                (Verdict::Fail, rest)
            } else {
                continue;
            };
            let Some((number, name)) = rest.trim().split_once(' ') else {
                continue;
            };
            if number.parse::<u32>().is_err() || suite.is_empty() {
                continue;
            }
            let (name, verdict) = match name.split_once(" # SKIP") {
                Some((name, _)) => (name, Verdict::Skip),
                None => (name, verdict),
            };
            cases.push((format!("{suite}/{name}"), verdict));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kunit_log() {
        let log = "\
KTAP version 1
    KTAP version 1
    # Subtest: vsock_sockmap_recv
    1..2
    ok 1 data_goes_first
[    0.100000]     not ok 2 waits
    ok 3 later # SKIP no reason
ok 1 vsock_sockmap_recv
";
        let cases = kunit_cases(log);
        let got: Vec<_> = cases
            .iter()
            .map(|(name, verdict)| (&name[..], *verdict))
            .collect();
        assert_eq!(
            got,
            [
                ("vsock_sockmap_recv/data_goes_first", Verdict::Pass),
                ("vsock_sockmap_recv/waits", Verdict::Fail),
                ("vsock_sockmap_recv/later", Verdict::Skip),
            ]
        );
    }

    #[test]
    fn areas() {
        assert_eq!(area_of("sockmap_basic/a: b"), "sockmap_basic");
        assert_eq!(area_of("sockmap_strp"), "sockmap_strp");
        assert_eq!(
            area_of("vsock_sockmap_outside/as outside: stream: pass: peek"),
            "vsock_sockmap_outside: as outside"
        );
    }

    #[test]
    fn cargo_log() {
        assert_eq!(
            cargo_case("test boot::tests::a ... ok"),
            Some(("boot::tests::a".to_string(), Verdict::Pass))
        );
        assert_eq!(
            cargo_case("test b ... FAILED"),
            Some(("b".to_string(), Verdict::Fail))
        );
        assert_eq!(cargo_case("running 3 tests"), None);
        assert_eq!(cargo_case("test result: ok. 3 passed; 0 failed"), None);
    }

    #[test]
    fn filter_selects_tests_or_subtests() {
        let tests = ["sockmap_basic", "vsock_sockmap_recv"];
        assert_eq!(select(&tests, None), "sockmap_basic,vsock_sockmap_recv");
        assert_eq!(select(&tests, Some("basic")), "sockmap_basic");
        assert_eq!(
            select(&tests, Some("EOF")),
            "sockmap_basic/*EOF*,vsock_sockmap_recv/*EOF*"
        );
    }

    fn case(name: &str, verdict: Verdict) -> Case {
        Case {
            name: name.to_string(),
            verdict,
            why: Vec::new(),
        }
    }

    /// Passed, failed and skipped for one row.
    fn row(name: &str, c: Option<Verdict>, rust: Option<Verdict>) -> (usize, usize, usize) {
        let mut tally = Tally::default();
        let c = c.map(|verdict| case(name, verdict));
        let rust = rust.map(|verdict| case(name, verdict));
        compare(&mut tally, "qemu", c.as_ref(), rust.as_ref());
        (tally.passed, tally.failed, tally.skipped)
    }

    #[test]
    fn rust_must_pass_what_c_passes() {
        use Verdict::*;
        assert_eq!(row("sockmap_redir/a", Some(Pass), Some(Pass)), (1, 0, 0));
        assert_eq!(row("sockmap_redir/a", Some(Pass), Some(Fail)), (0, 1, 0));
        assert_eq!(row("sockmap_redir/a", Some(Pass), Some(Skip)), (0, 1, 0));
        assert_eq!(row("sockmap_redir/a", Some(Pass), None), (0, 1, 0));
        assert_eq!(row("sockmap_redir/a", Some(Fail), Some(Pass)), (1, 0, 0));
        assert_eq!(row("sockmap_redir/a", Some(Fail), Some(Fail)), (0, 1, 0));
    }

    #[test]
    fn ours_is_skipped_only_with_c() {
        use Verdict::*;
        assert_eq!(row("vsock_sockmap/a", Some(Skip), Some(Pass)), (1, 0, 0));
        assert_eq!(row("vsock_sockmap/a", Some(Fail), Some(Pass)), (0, 1, 0));
        assert_eq!(row("vsock_sockmap/a", Some(Skip), Some(Skip)), (0, 1, 0));
    }
}
