// SPDX-License-Identifier: GPL-2.0-only
//! The experiment that started it: UNIX datagrams of a guest go to a vsock server on its host,
//! through socat and through the C and the Rust sockmap.
//!
//! The host leads: it starts a server, tells the guest over its serial console which redirector to
//! run, and waits until the server has everything or the time is over.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, Result};
use bytesize::ByteSize;
use clap::ValueEnum;
use serde::Deserialize;

use crate::guest::initramfs::Initramfs;
use crate::guest::pair::{fill, said, Pair};
use crate::guest::programs::{self, Programs};
use crate::host::env::Env;
use crate::host::progress::{self, Step};
use crate::host::toolroot::ToolRoot;
use crate::kernel::build::{build, Bed, Flavour, Image, Sockmap};
use crate::kernel::prepare;

#[derive(clap::Args)]
pub struct Args {
    /// How much the guest sends in each arm
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    bytes: ByteSize,
    /// What redirects: nothing (a sender that speaks vsock), socat, the C sockmap, the Rust sockmap
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "direct,socat,c,rust"
    )]
    arms: Vec<Arm>,
    /// How long each arm may take
    #[arg(long, value_name = "S", default_value_t = 180)]
    limit: u64,
}

/// A way from the UNIX socket to the vsock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Arm {
    Direct,
    Socat,
    C,
    Rust,
}

impl Arm {
    fn name(self) -> &'static str {
        match self {
            Arm::Direct => "direct",
            Arm::Socat => "socat",
            Arm::C => "c",
            Arm::Rust => "rust",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Arm::Direct => "none",
            Arm::Socat => "socat",
            Arm::C => "C sockmap",
            Arm::Rust => "Rust sockmap",
        }
    }
}

/// Which arms run on a guest with which sockmap. Those that do not use it run where the Rust arm
/// does, in the same boot.
fn guests(arms: &[Arm]) -> Vec<(Sockmap, Vec<Arm>)> {
    let with_socat = if arms.contains(&Arm::C) && !arms.contains(&Arm::Rust) {
        Sockmap::C
    } else {
        Sockmap::Rust
    };
    let mut guests = Vec::new();
    for sockmap in [Sockmap::Rust, Sockmap::C] {
        let mut here: Vec<Arm> = arms
            .iter()
            .copied()
            .filter(|arm| match arm {
                Arm::Direct | Arm::Socat => sockmap == with_socat,
                Arm::C => sockmap == Sockmap::C,
                Arm::Rust => sockmap == Sockmap::Rust,
            })
            .collect();
        here.sort();
        here.dedup();
        if !here.is_empty() {
            guests.push((sockmap, here));
        }
    }
    guests
}

/// How long the redirector of the sockmaps may take to hand over what it has when the sender is
/// done. The sender's send buffer is 4 MiB.
const DRAIN: u64 = 60;

/// What the host does.
const HOST: &str = r#"
# Waits for a line of the guest.
await() {
    until grep -q "^demo $1" /tmp/guest; do
        kill -0 $guest 2>/dev/null || { echo "demo: the guest is gone before '$1'"; end 1; }
        sleep 0.2
    done
}
await ready
for arm in @ARMS@; do
    # The kernel gives up a vsock connect after 2 s, which a busy machine can take to answer.
    for try in 1 2 3; do
        # More than is sent, so that it goes on until the end and sees that nothing follows.
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

/// The guest's main program: runs the arms that are named on the console.
const GUEST: &str = r#"#!/bin/sh
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

/// What `guest send-unix-dgram` tells.
#[derive(Clone, Debug, Deserialize)]
struct Sent {
    bytes: u64,
    hash: String,
    error: Option<String>,
}

/// What `guest serve-vsock` tells.
#[derive(Clone, Debug, Deserialize)]
struct Served {
    bytes: u64,
    /// From the first to the last byte.
    seconds: f64,
    hash: String,
    end: String,
    error: Option<String>,
}

/// What the consoles tell of an arm.
#[derive(Clone, Debug, Default)]
struct Told {
    sent: Option<Sent>,
    served: Option<Served>,
    /// The redirector's last words.
    said: String,
}

impl Told {
    /// Takes in a line of the host's console.
    fn read(told: &mut BTreeMap<Arm, Told>, line: &str) {
        let Some(rest) = said(line).strip_prefix("demo ") else {
            return;
        };
        let mut words = rest.splitn(3, ' ');
        let (Some(who), Some(name), text) = (words.next(), words.next(), words.next()) else {
            return;
        };
        let Ok(arm) = Arm::from_str(name, false) else {
            return;
        };
        let (told, text) = (told.entry(arm).or_default(), text.unwrap_or_default());
        // What is no JSON is an error message, and the arm will be seen to have failed.
        match who {
            "sender" => told.sent = serde_json::from_str(text).ok(),
            "server" => told.served = serde_json::from_str(text).ok(),
            "redirector" => told.said = text.trim().to_string(),
            _ => return,
        }
        if told.said.is_empty() && !text.starts_with('{') {
            told.said = text.to_string();
        }
    }

    fn speed(&self) -> Option<f64> {
        let served = self.served.as_ref()?;
        (served.seconds > 0.0).then(|| served.bytes as f64 / served.seconds / 1e6)
    }
}

/// How an arm went.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// Every byte arrived, once and in order.
    All,
    /// So did every byte that was sent within the time limit.
    Slow,
    Failed(String),
}

/// Of an arm that was to move `bytes`. Only the C sockmap may be too slow for them.
fn verdict(arm: Arm, told: &Told, bytes: u64) -> Verdict {
    let failed = |what: String| {
        Verdict::Failed(if told.said.is_empty() {
            what
        } else {
            format!("{what}; the redirector said: {}", told.said)
        })
    };
    let (Some(sent), Some(served)) = (&told.sent, &told.served) else {
        let who = if told.sent.is_none() {
            "sender"
        } else {
            "server"
        };
        return failed(format!("the {who} told nothing"));
    };
    if let Some(error) = &served.error {
        return failed(format!("the server: {error}"));
    }
    if served.bytes != sent.bytes {
        return failed(format!(
            "of {} bytes that were sent {} arrived",
            sent.bytes, served.bytes
        ));
    }
    if served.hash != sent.hash {
        return failed("what arrived is not what was sent".to_string());
    }
    if served.end != "eof" {
        return failed(format!("the connection did not end well: {}", served.end));
    }
    match &sent.error {
        None if sent.bytes == bytes => Verdict::All,
        Some(error) if error == "time limit" && arm == Arm::C => Verdict::Slow,
        error => failed(format!(
            "only {} bytes were sent ({})",
            sent.bytes,
            error.as_deref().unwrap_or("no reason given")
        )),
    }
}

/// Boots a host and a guest in it, and runs arms. Returns also what is wrong with the run as such.
fn run_guest(
    env: &Env,
    root: &ToolRoot,
    programs: &Programs,
    host: &Image,
    guest: &Image,
    arms: &[Arm],
    args: &Args,
) -> Result<(BTreeMap<Arm, Told>, Vec<String>)> {
    let bytes = args.bytes.as_u64();
    let main = fill(
        GUEST,
        &[("BYTES", &bytes), ("LIMIT", &args.limit), ("DRAIN", &DRAIN)],
    );
    let mut initramfs = Initramfs::new(env, root, &main);
    initramfs
        .modules(guest)?
        .file("/bin/vsock-redirect", &programs.redirect, 0o755)
        .file("/bin/guest", &programs.guest, 0o755)
        .program("/usr/bin/socat", Path::new("/usr/bin/socat"))?;
    let initramfs = initramfs.build(guest)?;

    let names: Vec<_> = arms.iter().map(|arm| arm.name()).collect();
    let arm_limit = args.limit + DRAIN + 20;
    let script = fill(
        HOST,
        &[
            ("GUEST", &programs.guest.display()),
            ("ARMS", &names.join(" ")),
            ("BYTES", &bytes),
            ("SERVER_LIMIT", &arm_limit),
        ],
    );

    let mut step = Step::new(&format!(
        "pair: {} of {} with the {} kernel in the guest",
        names.join(" and "),
        args.bytes,
        guest.flavour.sockmap.name()
    ));
    let mut told = BTreeMap::new();
    let mut each_line = |line: &str| {
        Told::read(&mut told, line);
        step.at(line);
    };
    let pair = Pair {
        env,
        root,
        host,
        guest,
        initramfs: &initramfs,
        args: &[],
        script: &script,
        limit: Duration::from_secs(arm_limit * arms.len() as u64),
    };
    let name = format!("pair-{}", guest.flavour.sockmap.name());
    let (outcome, problems) = pair.run(&name, &mut each_line)?;
    if problems.is_empty() {
        step.done();
    }
    progress::say(&format!("log: {}", outcome.log_path.display()));
    Ok((told, problems))
}

/// The table, and what went wrong.
fn report(ran: &[(Arm, Sockmap, Told)], bytes: u64) -> (String, Vec<String>) {
    let socat = ran
        .iter()
        .find(|(arm, ..)| *arm == Arm::Socat)
        .and_then(|(.., told)| told.speed());
    let mut table = format!(
        "{:<14}{:<14}{:>8}{:>9}{:>9}{:>10}  every byte arrived\n",
        "redirector", "guest kernel", "MiB", "seconds", "MB/s", "vs socat"
    );
    let mut failed = Vec::new();
    for (arm, sockmap, told) in ran {
        let speed = told.speed();
        let number = |value: Option<f64>, digits: usize| {
            value.map_or("-".to_string(), |value| format!("{value:.digits$}"))
        };
        let ratio = speed.zip(socat).map(|(speed, socat)| speed / socat);
        let moved = told.served.as_ref().map(|served| served.bytes);
        let word = match verdict(*arm, told, bytes) {
            Verdict::All => "yes".to_string(),
            Verdict::Slow => "yes, of what the time limit let it send".to_string(),
            Verdict::Failed(what) => {
                failed.push(format!("{}: {what}", arm.title()));
                "NO".to_string()
            }
        };
        let _ = writeln!(
            table,
            "{:<14}{:<14}{:>8}{:>9}{:>9}{:>10}  {word}",
            arm.title(),
            sockmap.name(),
            number(moved.map(|moved| moved as f64 / (1 << 20) as f64), 1),
            number(told.served.as_ref().map(|served| served.seconds), 1),
            number(speed, 1),
            ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}x")),
        );
    }
    (table, failed)
}

pub fn run(env: &Env, args: Args) -> Result<()> {
    if args.bytes.as_u64() == 0 {
        bail!("--bytes 0 is nothing to send");
    }
    let (root, tree) = prepare::prepare_tree(env)?;
    let flavour = |bed, sockmap| Flavour {
        bed,
        sockmap,
        debug: false,
    };
    let programs = programs::build(env, &root)?;
    let host = build(env, &root, &tree, flavour(Bed::PairHost, Sockmap::Rust))?;
    let mut guests_built = Vec::new();
    for (sockmap, arms) in guests(&args.arms) {
        let image = build(env, &root, &tree, flavour(Bed::Qemu, sockmap))?;
        guests_built.push((image, arms));
    }
    // Others may change the tree and build from it while this only boots.
    drop(tree);

    let mut ran = Vec::new();
    let mut problems = Vec::new();
    for (image, arms) in &guests_built {
        let (mut told, wrong) = run_guest(env, &root, &programs, &host, image, arms, &args)?;
        problems.extend(wrong);
        for arm in arms {
            let told = told.remove(arm).unwrap_or_default();
            ran.push((*arm, image.flavour.sockmap, told));
        }
    }
    ran.sort_by_key(|(arm, ..)| *arm);
    let (table, failed) = report(&ran, args.bytes.as_u64());
    println!(
        "UNIX datagrams of 64 KiB in a guest, one thread, to a vsock server on its host, {}.\n\
         Redirector none: the sender writes to the vsock itself.\n",
        args.bytes
    );
    print!("{table}");
    problems.extend(failed);
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_no_sockmap_runs_where_the_rust_arm_does() {
        use Arm::{Direct, Socat, C};
        assert_eq!(
            guests(&[Direct, Socat, C, Arm::Rust]),
            [
                (Sockmap::Rust, vec![Direct, Socat, Arm::Rust]),
                (Sockmap::C, vec![C])
            ]
        );
        assert_eq!(guests(&[C, Socat]), [(Sockmap::C, vec![Socat, C])]);
        assert_eq!(guests(&[Socat]), [(Sockmap::Rust, vec![Socat])]);
        assert_eq!(guests(&[C, C]), [(Sockmap::C, vec![C])]);
    }

    fn told(sent: u64, sent_error: Option<&str>, arrived: u64, hash: &str, end: &str) -> Told {
        let mut all = BTreeMap::new();
        let error = sent_error.map_or("null".to_string(), |error| format!("{error:?}"));
        Told::read(
            &mut all,
            &format!(r#"guest| demo sender c {{"bytes":{sent},"hash":"h","error":{error}}}"#),
        );
        Told::read(
            &mut all,
            &format!(
                r#"demo server c {{"bytes":{arrived},"seconds":2.0,"hash":"{hash}","end":"{end}","error":null}}"#
            ),
        );
        all.remove(&Arm::C).unwrap()
    }

    #[test]
    fn every_byte_or_a_failure() {
        let good = told(100, None, 100, "h", "eof");
        for arm in [Arm::Socat, Arm::C, Arm::Rust] {
            assert_eq!(verdict(arm, &good, 100), Verdict::All);
            for bad in [
                told(100, None, 99, "h", "eof"),
                told(100, None, 101, "h", "too much"),
                told(100, None, 100, "x", "eof"),
                told(100, None, 100, "h", "timeout"),
                told(50, None, 50, "h", "eof"),
                told(50, Some("send: refused"), 50, "h", "eof"),
                told(50, Some("time limit"), 40, "h", "eof"),
                Told::default(),
            ] {
                assert!(
                    matches!(verdict(arm, &bad, 100), Verdict::Failed(_)),
                    "{bad:?}"
                );
            }
        }
    }

    #[test]
    fn only_the_c_sockmap_may_be_slow() {
        let slow = told(50, Some("time limit"), 50, "h", "eof");
        assert_eq!(verdict(Arm::C, &slow, 100), Verdict::Slow);
        assert!(matches!(verdict(Arm::Rust, &slow, 100), Verdict::Failed(_)));
        assert!(matches!(
            verdict(Arm::Socat, &slow, 100),
            Verdict::Failed(_)
        ));
    }

    #[test]
    fn error_message_in_place_of_json() {
        let mut all = BTreeMap::new();
        Told::read(
            &mut all,
            "guest| demo redirector rust vsock-redirect: no vsock",
        );
        Told::read(&mut all, "guest| demo sender rust bed: cannot connect");
        let Verdict::Failed(what) = verdict(Arm::Rust, &all[&Arm::Rust], 1) else {
            panic!("no failure");
        };
        assert!(what.contains("vsock-redirect: no vsock"), "{what}");
    }

    #[test]
    fn table_has_ratios() {
        let ran = [
            (
                Arm::Socat,
                Sockmap::Rust,
                told(4_000_000, None, 4_000_000, "h", "eof"),
            ),
            (
                Arm::Rust,
                Sockmap::Rust,
                told(8_000_000, None, 8_000_000, "h", "eof"),
            ),
        ];
        let (table, failed) = report(&ran, 8_000_000);
        assert!(table.contains("2.00x  yes"), "{table}");
        assert_eq!(failed.len(), 1);
    }
}
