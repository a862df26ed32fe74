// SPDX-License-Identifier: GPL-2.0-only
//! Measurements for unit tests.

use crate::kernel::build::Sockmap;

use super::measured::Measured;
use super::results::{Failed, Results, Setup};

pub fn paths() -> Vec<String> {
    ["unix-dgram-to-vsock", "vsock-to-tcp"]
        .map(String::from)
        .into()
}

pub fn measured(kernel: Sockmap, json: &str) -> Measured {
    let line = serde_json::from_str(json).unwrap();
    Measured { kernel, line }
}

pub fn throughput(kernel: Sockmap, path: &str, arm: &str, size: usize, mb_s: f64) -> Measured {
    let json = format!(
        r#"{{"path":"{path}","arm":"{arm}","round":0,"size":{size},"connections":1,
            "bytes":10,"of":10,"mb_s":{mb_s},"cpu_ms_mib":1.5}}"#
    );
    measured(kernel, &json)
}

pub fn of_each_kernel() -> Vec<Measured> {
    let at = |kernel, arm, mb_s| throughput(kernel, "unix-dgram-to-vsock", arm, 65536, mb_s);
    vec![
        at(Sockmap::Rust, "copy", 10.0),
        at(Sockmap::Rust, "sockmap", 30.0),
        at(Sockmap::Rust, "sockmap", 20.0),
        at(Sockmap::Rust, "sockmap", 90.0),
        at(Sockmap::C, "sockmap", 15.0),
        at(Sockmap::C, "copy", 1.0),
        at(Sockmap::Pristine, "sockmap", 0.5),
    ]
}

/// All kinds of figures on a test bed.
pub fn results(bed: &str) -> Results {
    let mut measurements = of_each_kernel();
    for json in [
        r#"{"path":"vsock-to-tcp","arm":"sockmap","round":0,"p50_us":7.0,"p99_us":9.0}"#,
        r#"{"path":"vsock-to-tcp","arm":"sockmap","round":0,"idle_kib":12.5}"#,
        r#"{"path":"unix-dgram-to-vsock","arm":"sockmap","round":0,"size":65536,
            "connections":1,"packets_mib":16.0,"updates_mib":null}"#,
    ] {
        measurements.push(measured(Sockmap::Rust, json));
    }
    Results {
        setup: Setup {
            bed: bed.to_string(),
            date: "2026-01-31".to_string(),
            source: "7.3.4-1".to_string(),
            processors: 2,
            kvm: false,
            rounds: 3,
            time_ms: 200,
            paths: paths(),
            failed: vec![Failed {
                what: "vsock-to-tcp, 64 bytes".to_string(),
                why: "the guest panicked".to_string(),
            }],
        },
        measurements,
    }
}
