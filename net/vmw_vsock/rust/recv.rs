// SPDX-License-Identifier: GPL-2.0

//! `recvmsg` of a vsock socket in a sockmap.
//!
//! Data comes from two queues: the ingress queue of the psock holds what a verdict passed or
//! redirected to the socket, the queue of the transport what no verdict has taken. The native
//! receive knows the latter alone, and must not wait for it: data for the former would not end that
//! wait. So it is only called to take what is there, and to say how a connection ended, while all
//! waiting is done here, with the socket lock given up.

use kernel::{
    net::{
        psock::PsockRef,
        sock::{
            Sock,
            SockType,
            Waiter, //
        },
        socket::{
            MsgFlags,
            MsgHdr, //
        },
    },
    prelude::*, //
};

use pin_init::stack_pin_init;

use crate::vsock::VsockRef;

/// What a receive can see of its socket at one moment, under the socket lock.
#[derive(Clone, Copy)]
struct View {
    /// The psock has data.
    ingress: bool,
    /// The transport has data.
    native: bool,
    /// No more data can come.
    ended: bool,
    /// The caller asked not to wait.
    nonblock: bool,
    /// A signal is pending for the caller.
    signal: bool,
    /// The time to wait is over.
    expired: bool,
}

/// What a receive does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// Read from the psock.
    Ingress,
    /// Let the native receive read from the transport, or say how the connection ended.
    Native,
    /// Sleep, and look again.
    Wait,
    /// Give up, a signal came.
    Interrupted,
    /// Give up, there is nothing and no time left.
    Again,
}

impl View {
    /// Decides what to do next.
    ///
    /// Data goes before everything else, so that an end or a signal is reported after it. What the
    /// verdict has passed came before what is still in the queue of the transport.
    fn next(self) -> Step {
        if self.ingress {
            Step::Ingress
        } else if self.native || self.ended {
            Step::Native
        } else if self.signal && !self.nonblock {
            Step::Interrupted
        } else if self.expired {
            Step::Again
        } else {
            Step::Wait
        }
    }
}

/// Receives at most `len` bytes, or one record, into `msg`.
///
/// Process context; no lock is held on entry. The socket lock is taken, and given up to sleep.
///
/// # Errors
///
/// [`EAGAIN`] if nothing came in time, [`EINTR`] or [`ERESTARTSYS`] for a signal, and those of a
/// receive outside of a sockmap.
pub(crate) fn recvmsg(sk: &Sock, msg: &mut MsgHdr, len: usize, flags: MsgFlags) -> Result<usize> {
    let vsk = VsockRef::new(sk)?;

    // None of these reads data, so that it does not matter which queue has some.
    if len == 0 || flags.intersects(MsgFlags::ERRQUEUE.with(MsgFlags::OOB)) {
        return vsk.native_recvmsg(msg, len, flags);
    }

    // Before the lock, for it must be dropped after the lock.
    let Some(psock) = PsockRef::get(sk) else {
        return vsk.native_recvmsg(msg, len, flags);
    };

    let nonblock = flags.intersects(MsgFlags::DONTWAIT);
    // A record is returned as it is, and so is the first look at a stream.
    let gathers = sk.kind() == SockType::Stream && !flags.intersects(MsgFlags::PEEK);
    let target = sk.receive_target(flags.intersects(MsgFlags::WAITALL), len);
    let mut timeout = sk.receive_timeout(nonblock);
    let mut copied: usize = 0;

    let mut lock = sk.lock();
    stack_pin_init!(let waiter = Waiter::new(&lock));

    loop {
        let rest = len.saturating_sub(copied);
        let step = View {
            ingress: !psock.is_empty(),
            native: vsk.has_data(&lock),
            ended: vsk.has_ended(&lock),
            nonblock,
            signal: current!().signal_pending(),
            expired: timeout.expired(),
        }
        .next();

        let result = match step {
            Step::Wait => {
                lock = lock.wait(waiter.as_mut(), &mut timeout);
                continue;
            }
            Step::Ingress => psock.recv(&lock, msg, rest, flags),
            Step::Native => {
                // It takes the lock itself.
                drop(lock);
                let flags = flags.with(MsgFlags::DONTWAIT).without(MsgFlags::WAITALL);
                let result = vsk.native_recvmsg(msg, rest, flags);
                lock = sk.lock();
                if result == Err(EAGAIN) {
                    // Another reader, or the verdict, was faster.
                    continue;
                }
                result
            }
            Step::Interrupted => Err(timeout.interrupted()),
            Step::Again => Err(EAGAIN),
        };

        match result {
            Ok(0) => return Ok(copied),
            Ok(bytes) => {
                copied = copied.saturating_add(bytes);
                if !gathers || copied >= target {
                    return Ok(copied);
                }
            }
            // What was read is reported first; the error is still there for the next call.
            Err(_) if copied > 0 => return Ok(copied),
            Err(err) => return Err(err),
        }
    }
}

#[kunit_tests(vsock_sockmap_recv)]
mod tests {
    use super::*;

    /// Calls `check` with each of the 64 possible views.
    fn for_each_view(check: impl Fn(View, Step)) {
        for bits in 0u32..64 {
            let view = View {
                ingress: bits & 1 != 0,
                native: bits & 2 != 0,
                ended: bits & 4 != 0,
                nonblock: bits & 8 != 0,
                signal: bits & 16 != 0,
                expired: bits & 32 != 0,
            };
            check(view, view.next());
        }
    }

    #[test]
    fn data_goes_first() {
        for_each_view(|view, step| {
            if view.ingress {
                assert_eq!(step, Step::Ingress);
            } else if view.native {
                assert_eq!(step, Step::Native);
            }
        });
    }

    #[test]
    fn an_end_is_reported_by_the_native_receive() {
        for_each_view(|view, step| {
            if !view.ingress && view.ended {
                assert_eq!(step, Step::Native);
            }
        });
    }

    #[test]
    fn waits_only_when_nothing_else_is_left() {
        for_each_view(|view, step| {
            let idle = !view.ingress && !view.native && !view.ended;
            let may_sleep = !view.expired && (view.nonblock || !view.signal);
            let waits = step == Step::Wait;
            assert_eq!(waits, idle && may_sleep);
        });
    }

    #[test]
    fn a_signal_does_not_interrupt_who_does_not_wait() {
        for_each_view(|view, step| {
            if view.nonblock {
                assert!(step != Step::Interrupted);
            }
        });
    }
}
