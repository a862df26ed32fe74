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
            SockType,
            Timeout, //
        },
        socket::{
            MsgFlags,
            MsgHdr,
            SockLock,
            Socket, //
        },
    },
    prelude::*, //
};

use crate::vsock::{
    native_recvmsg,
    LockedVsock, //
};

/// What a receive can see of its socket at one moment, under the socket lock.
#[derive(Clone, Copy)]
struct View {
    /// This side shut down receiving.
    shutdown: bool,
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
    fn of(lock: &SockLock<'_>, psock: &PsockRef<'_>, how: &How) -> Result<Self> {
        let vsk = LockedVsock::new(lock)?;
        Ok(Self {
            shutdown: lock.sk().receive_shutdown(),
            ingress: !psock.is_empty(),
            native: vsk.has_data(),
            ended: vsk.has_ended(),
            nonblock: how.nonblock,
            signal: current!().signal_pending(),
            expired: how.timeout.expired(),
        })
    }

    /// Decides what to do next.
    ///
    /// A socket that shut down receiving reads nothing more, whatever is queued. Else data goes
    /// before an end and before a signal, and what the verdict has passed before what it has not
    /// seen yet.
    fn next(self) -> Step {
        if self.shutdown {
            Step::Native
        } else if self.ingress {
            Step::Ingress
        } else if self.native || self.ended {
            Step::Native
        } else if self.nonblock {
            Step::Again
        } else if self.signal {
            Step::Interrupted
        } else if self.expired {
            Step::Again
        } else {
            Step::Wait
        }
    }
}

/// How long a receive may wait.
struct How {
    nonblock: bool,
    timeout: Timeout,
}

/// Receives at most `len` bytes, or one record, into `msg`.
///
/// Records that the verdict passed are read as a stream.
///
/// No lock is held on entry. The socket lock is taken, and given up to sleep.
///
/// # Errors
///
/// [`EAGAIN`] if nothing came in time, [`EINTR`] or [`ERESTARTSYS`] for a signal, and those of a
/// receive outside of a sockmap.
pub(crate) fn recvmsg(
    socket: &Socket,
    mut msg: Pin<&mut MsgHdr>,
    len: usize,
    flags: MsgFlags,
) -> Result<usize> {
    let sk = socket.sk();

    // None of these reads data, so that it does not matter which queue has some.
    if len == 0 || flags.intersects(MsgFlags::ERRQUEUE.with(MsgFlags::OOB)) {
        return native_recvmsg(socket, msg, len, flags);
    }

    // Before the lock, to be dropped after it.
    let Some(psock) = PsockRef::get(sk) else {
        return native_recvmsg(socket, msg, len, flags);
    };

    let nonblock = flags.intersects(MsgFlags::DONTWAIT);
    let mut how = How {
        nonblock,
        timeout: sk.rcvtimeo(nonblock),
    };
    // A record of the transport is returned as it is, and so is the first look at a stream.
    let gathers = sk.sk_type() == SockType::Stream && !flags.intersects(MsgFlags::PEEK);
    let target = sk.rcvlowat(flags.intersects(MsgFlags::WAITALL), len);
    let native_flags = flags.with(MsgFlags::DONTWAIT).without(MsgFlags::WAITALL);
    let mut copied: usize = 0;

    let mut lock = socket.lock();
    loop {
        let rest = len.saturating_sub(copied);

        let result = match View::of(&lock, &psock, &how)?.next() {
            Step::Wait => {
                let mut timeout = how.timeout;
                lock = lock.wait(&mut timeout, |lock| {
                    View::of(lock, &psock, &how).map_or(true, |view| view.next() != Step::Wait)
                });
                how.timeout = timeout;
                continue;
            }
            Step::Ingress => psock.recvmsg(&lock, msg.as_mut(), rest, flags),
            Step::Native => {
                let msg = msg.as_mut();
                let result;
                (lock, result) =
                    lock.unlocked(|socket| native_recvmsg(socket, msg, rest, native_flags));
                if result == Err(EAGAIN) {
                    // Another reader, or the verdict, was faster.
                    continue;
                }
                result
            }
            Step::Interrupted => Err(how.timeout.intr_errno()),
            Step::Again => Err(EAGAIN),
        };

        match result {
            Ok(0) => return Ok(copied),
            Ok(bytes) => {
                copied = copied.saturating_add(bytes);
                if !gathers || copied >= target {
                    return Ok(copied);
                }
                // Each piece may take that long, as outside of a sockmap.
                how.timeout = sk.rcvtimeo(nonblock);
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

    /// Calls `check` with each of the 128 possible views.
    fn for_each_view(check: impl Fn(View, Step)) {
        for bits in 0u32..128 {
            let view = View {
                shutdown: bits & 1 != 0,
                ingress: bits & 2 != 0,
                native: bits & 4 != 0,
                ended: bits & 8 != 0,
                nonblock: bits & 16 != 0,
                signal: bits & 32 != 0,
                expired: bits & 64 != 0,
            };
            check(view, view.next());
        }
    }

    #[test]
    fn nothing_is_read_after_a_shutdown() {
        for_each_view(|view, step| {
            if view.shutdown {
                assert_eq!(step, Step::Native);
            }
        });
    }

    #[test]
    fn data_goes_first() {
        for_each_view(|view, step| {
            if view.shutdown {
                return;
            }
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
            let idle = !(view.shutdown || view.ingress || view.native || view.ended);
            let may_sleep = !(view.nonblock || view.signal || view.expired);
            let waits = step == Step::Wait;
            assert_eq!(waits, idle && may_sleep);
        });
    }

    #[test]
    fn who_does_not_wait_is_not_interrupted() {
        for_each_view(|view, step| {
            if view.nonblock {
                assert!(step != Step::Interrupted);
            }
        });
    }

    #[test]
    fn a_signal_goes_before_the_time_limit() {
        for_each_view(|view, step| {
            if view.signal && !view.nonblock {
                assert!(step != Step::Again);
            }
        });
    }
}
