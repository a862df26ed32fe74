// SPDX-License-Identifier: GPL-2.0-only
//! Opens the connection that a setup describes.

use std::os::fd::{AsFd, OwnedFd};

use anyhow::Result;
use sockmap::{Map, Program};

use super::connection::{Connection, Helper, Middle};
use super::end::{pair, End};
use super::setup::{Arm, Kind, Setup};
use super::socat;

/// The key of the only socket in a map.
const KEY: u64 = 0;

pub fn open(setup: Setup) -> Result<Connection> {
    match setup.arm {
        Arm::Socat => socat::open_connection(setup.path.kinds().0, setup.peer),
        Arm::Direct => direct(setup),
        Arm::Copy => through_middle(setup, |_| Ok(Helper::None)),
        Arm::Sockmap => through_middle(setup, |middle| {
            redirect_both_ways(middle).map(Helper::Sockmap)
        }),
    }
}

fn direct(setup: Setup) -> Result<Connection> {
    let (near, far) = pair(Kind::Vsock, setup.peer)?;
    let (writer, reader) = match setup.path.kinds().1 {
        Kind::Vsock => (End::Local(near), far),
        _ => (far, End::Local(near)),
    };
    Ok(Connection {
        writer,
        middle: None,
        reader,
        _helper: Helper::None,
    })
}

fn through_middle(
    setup: Setup,
    helper: impl FnOnce(&Middle) -> Result<Helper>,
) -> Result<Connection> {
    let (from, to) = setup.path.kinds();
    let (target, reader) = pair(to, setup.peer)?;
    let (source, writer) = pair(from, setup.peer)?;
    let middle = Middle { source, target };
    let helper = helper(&middle)?;
    Ok(Connection {
        writer,
        middle: Some(middle),
        reader,
        _helper: helper,
    })
}

/// Redirects from the source to the target, and back.
fn redirect_both_ways(middle: &Middle) -> Result<[(Map, Program); 2]> {
    let (there, back) = (Map::new(1)?, Map::new(1)?);
    let program = Program::redirect(&there, KEY as u32)?;
    back.attach(&program)?;
    // The target enters its map first: the program drops a packet that finds no target.
    let there = redirect_to(&back, there, &middle.target)?;
    back.insert(KEY, middle.source.as_fd())?;
    Ok([there, (back, program)])
}

/// Puts `socket` into `map`, with a program that redirects its packets to the socket in `to`.
fn redirect_to(to: &Map, map: Map, socket: &OwnedFd) -> Result<(Map, Program)> {
    let program = Program::redirect(to, KEY as u32)?;
    map.attach(&program)?;
    map.insert(KEY, socket.as_fd())?;
    Ok((map, program))
}
