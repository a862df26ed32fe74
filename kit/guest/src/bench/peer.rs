// SPDX-License-Identifier: GPL-2.0-only
//! `guest bench-peer`: holds the remote ends of vsock connections on another machine.
//!
//! The server does what the benchmark orders. Orders have a connection of their own, because the
//! data connection may be in a sockmap.

use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use nix::errno::Errno;
use nix::libc::{VMADDR_CID_ANY, VMADDR_PORT_ANY};
use nix::sys::socket::{connect, AddressFamily, SockType, VsockAddr};

use super::blocking::{drain, echo, receive_all, send_all, set_time_limit, write, LIMIT};
use crate::sockets::{accept, listener, open};

/// How often to try a connect. The kernel gives up after 2 s, and a busy machine may need longer.
const TRIES: u32 = 5;

/// The address of a server.
#[derive(Clone, Copy)]
pub struct Peer {
    pub cid: u32,
    pub port: u32,
}

impl std::str::FromStr for Peer {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once(':');
        let (cid, port) = parts.ok_or("expected CID:PORT")?;
        Ok(Peer {
            cid: cid.parse().map_err(|_| "not a CID")?,
            port: port.parse().map_err(|_| "not a port")?,
        })
    }
}

/// An end on the peer. It is closed when this is dropped.
pub struct Remote {
    orders: OwnedFd,
    /// The address at which the end waits for its connection.
    pub address: VsockAddr,
}

/// An order to an end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Write `bytes` bytes, `size` at once. The answer is 0, when all are sent.
    Write { bytes: u64, size: u64 },
    /// Read `bytes` bytes. The answer is how many arrived.
    Drain { bytes: u64 },
    /// Send back what arrives. There is no answer.
    Echo,
}

/// Bytes of an encoded order: three numbers of 64 bits.
const ORDER: usize = 24;
/// Bytes of an answer: one number of 64 bits.
const ANSWER: usize = 8;

impl Order {
    fn encode(self) -> [u8; ORDER] {
        let words = match self {
            Order::Write { bytes, size } => [0, bytes, size],
            Order::Drain { bytes } => [1, bytes, 0],
            Order::Echo => [2, 0, 0],
        };
        let mut encoded = [0; ORDER];
        for (to, word) in encoded.chunks_mut(8).zip(words) {
            to.copy_from_slice(&u64::to_le_bytes(word));
        }
        encoded
    }

    fn decode(encoded: [u8; ORDER]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(encoded[at..at + 8].try_into().ok()?));
        let (bytes, size) = (word(8)?, word(16)?);
        match word(0)? {
            0 => Some(Order::Write { bytes, size }),
            1 => Some(Order::Drain { bytes }),
            2 => Some(Order::Echo),
            _ => None,
        }
    }
}

fn open_connection(address: &VsockAddr) -> Result<OwnedFd> {
    for _ in 0..TRIES {
        let fd = open(AddressFamily::Vsock, SockType::Stream)?;
        match connect(fd.as_raw_fd(), address) {
            Ok(()) => return Ok(fd),
            Err(Errno::ETIMEDOUT) => {}
            Err(errno) => return Err(errno).with_context(|| format!("connect to {address}")),
        }
    }
    bail!("{address} does not answer: is `guest bench-peer` running there?");
}

impl Peer {
    /// Asks the server for a new end, which waits for its connection.
    pub fn offer(self) -> Result<Remote> {
        let orders = open_connection(&VsockAddr::new(self.cid, self.port))?;
        // An answer may take as long as a call of the server, which has the limit too.
        set_time_limit(&orders, 2 * LIMIT)?;
        let mut port = [0; ANSWER];
        ensure!(receive_all(&orders, &mut port)?, "the peer offers no end");
        let port =
            u32::try_from(u64::from_le_bytes(port)).context("the peer sent an impossible port")?;
        Ok(Remote {
            orders,
            address: VsockAddr::new(self.cid, port),
        })
    }
}

impl Remote {
    /// Connects to the end.
    pub fn connect(&self) -> Result<OwnedFd> {
        open_connection(&self.address)
    }

    fn order(&self, order: Order) -> Result<()> {
        ensure!(
            send_all(&self.orders, &order.encode())?,
            "time limit of an order"
        );
        Ok(())
    }

    /// Returns the answer, or `None` if the peer gave up.
    fn answer(&self) -> Result<Option<usize>> {
        let mut answer = [0; ANSWER];
        let came = receive_all(&self.orders, &mut answer)?;
        Ok(came.then_some(u64::from_le_bytes(answer) as usize))
    }

    /// Lets the peer write `bytes` bytes, `size` at once.
    pub fn write(&self, bytes: usize, size: usize) -> Result<()> {
        self.order(Order::Write {
            bytes: bytes as u64,
            size: size as u64,
        })?;
        self.answer().map(|_| ())
    }

    /// Lets the peer read `bytes` bytes, or until nothing more comes. Returns how many arrived.
    pub fn drain(&self, bytes: usize) -> Result<usize> {
        self.order(Order::Drain {
            bytes: bytes as u64,
        })?;
        Ok(self.answer()?.unwrap_or(0))
    }

    /// Lets the peer send back what arrives, until the end of the connection.
    pub fn echo(&self) -> Result<()> {
        self.order(Order::Echo)
    }
}

/// Offers an end and carries out the orders for it.
fn obey(orders: OwnedFd) -> Result<()> {
    let (listener, address) = listener(SockType::Stream, VMADDR_CID_ANY, VMADDR_PORT_ANY)?;
    set_time_limit(&listener, LIMIT * TRIES)?;
    send_all(&orders, &u64::from(address.port()).to_le_bytes())?;
    let end = accept(&listener).context("no connection arrived")?;
    set_time_limit(&end, LIMIT)?;
    let mut order = [0; ORDER];
    while receive_all(&orders, &mut order)? {
        let until = Instant::now() + LIMIT;
        let answer = match Order::decode(order).context("received an unknown order")? {
            Order::Write { bytes, size } => {
                write(&end, bytes as usize, size as usize, until)?;
                0
            }
            Order::Drain { bytes } => drain(&end, bytes as usize, until)?.0,
            Order::Echo => {
                echo(&end)?;
                continue;
            }
        };
        send_all(&orders, &(answer as u64).to_le_bytes())?;
    }
    Ok(())
}

/// Serves until the process is killed.
pub fn serve(port: u32) -> Result<bool> {
    let (listener, _) = listener(SockType::Stream, VMADDR_CID_ANY, port)?;
    loop {
        let orders = accept(&listener)?;
        set_time_limit(&orders, Duration::ZERO)?;
        thread::spawn(|| {
            if let Err(error) = obey(orders) {
                eprintln!("guest: {error:#}");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_encoding() {
        for order in [
            Order::Write { bytes: 1, size: 2 },
            Order::Drain { bytes: 3 },
            Order::Echo,
        ] {
            assert_eq!(Order::decode(order.encode()), Some(order));
        }
        assert_eq!(Order::decode([9; ORDER]), None);
    }

    #[test]
    fn peer_has_cid_and_port() {
        let peer: Peer = "2:1234".parse().unwrap();
        assert_eq!((peer.cid, peer.port), (2, 1234));
        for wrong in ["2", "2:", ":1", "a:1"] {
            assert!(wrong.parse::<Peer>().is_err(), "{wrong}");
        }
    }
}
