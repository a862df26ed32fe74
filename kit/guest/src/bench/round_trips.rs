// SPDX-License-Identifier: GPL-2.0-only
//! Measures the time of round trips.

use std::time::Instant;

use anyhow::{bail, ensure, Result};

use super::blocking::{receive_all, send_all};
use super::end::End;
use super::open::open;
use super::setup::{Arm, Setup};
use super::throughput::copy;
use super::worker::Crew;

/// Bytes of a round trip.
const SIZE: usize = 64;

/// Returns the times of `trips` round trips in microseconds, in ascending order.
pub fn measure(setup: Setup, trips: usize) -> Result<Vec<f64>> {
    let connection = open(setup)?;
    let (near, echo) = match (&connection.writer, &connection.reader) {
        (End::Local(near), echo) | (echo, End::Local(near)) => (near, echo),
        (End::Remote(_), End::Remote(_)) => bail!("both ends are on the peer: none is here"),
    };
    let crew = Crew::new()?;
    let mut helpers = vec![crew.add(|| echo.echo().map(|()| [0, 0]))?];
    if let (Arm::Copy, Some(middle)) = (setup.arm, &connection.middle) {
        helpers.push(crew.add(|| copy(&middle.source, &middle.target))?);
        helpers.push(crew.add(|| copy(&middle.target, &middle.source))?);
    }
    crew.begin();
    let mut times = Vec::new();
    let mut buffer = [0x5a; SIZE];
    for _ in 0..trips {
        let start = Instant::now();
        ensure!(send_all(near, &buffer)?, "time limit of a send");
        ensure!(receive_all(near, &mut buffer)?, "no answer");
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
