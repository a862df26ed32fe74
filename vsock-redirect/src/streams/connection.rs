// SPDX-License-Identifier: GPL-2.0-only
//! Serves one client: connects to the vsock and runs both directions.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, Result};

use super::direction::Direction;
use super::run;
use super::service::{Service, STACK};
use crate::end::{End, Kind};
use crate::redirect::Unsupported;
use crate::stop::Flag;
use crate::vsock;

/// Serves a client until the end of its connection. Returns false if data may be lost.
pub fn serve(service: &Service, id: u64, unix: OwnedFd) -> bool {
    // If an error is returned here, `unix` is closed, which tells the client.
    let prepare = || -> std::io::Result<_> { Ok((vsock::connect(service.peer)?, Flag::new()?)) };
    let (vsock, client_done) = match prepare() {
        Ok(prepared) => prepared,
        Err(error) => {
            eprintln!("connection {id}: {error}");
            return true;
        }
    };
    let unix = End::new(unix, Kind::Unix);
    let vsock = End::new(vsock, Kind::Vsock);
    let requests = Direction {
        service,
        from: &unix,
        to: &vsock,
        tally: &service.to_vsock,
        client_done: &client_done,
    };
    let answers = Direction {
        service,
        from: &vsock,
        to: &unix,
        tally: &service.to_unix,
        client_done: &client_done,
    };
    let mut clean = true;
    for error in run_both(&requests, &answers)
        .into_iter()
        .filter_map(Result::err)
    {
        clean = false;
        if error.is::<Unsupported>() {
            service.fail(error);
        } else {
            eprintln!("connection {id}: {error:#}");
        }
    }
    if clean {
        vsock.flush(Duration::from_secs(2));
    }
    clean
}

/// Runs one direction in a thread of its own, and the other one in this thread.
fn run_both(requests: &Direction<'_>, answers: &Direction<'_>) -> [Result<()>; 2] {
    thread::scope(|scope| {
        let builder = thread::Builder::new().stack_size(STACK);
        match builder.spawn_scoped(scope, || run::run(requests)) {
            Ok(thread) => {
                let answers = run::run(answers);
                let requests = thread.join();
                [
                    requests.unwrap_or_else(|_| Err(anyhow!("a thread panicked"))),
                    answers,
                ]
            }
            Err(error) => [Err(error.into()), Ok(())],
        }
    })
}
