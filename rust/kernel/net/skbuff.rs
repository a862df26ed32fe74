// SPDX-License-Identifier: GPL-2.0

//! Socket buffers (`struct sk_buff`, skb): each holds a packet or a part of one.
//!
//! - [`SkBuff`] is a buffer that Rust code owns. It is freed when it is dropped.
//! - [`SkBuffOwner`] is a value that a buffer holds, and drops when the buffer is freed.
//! - [`SkBuffQueue`] is a queue of buffers.
//! - [`SkBuffSlice`] is a range of bytes in a buffer that C code owns.
//!
//! C header: [`include/linux/skbuff.h`](srctree/include/linux/skbuff.h)

mod copy;
mod frag_list;
mod kunit;
mod owned;
mod owner;
mod queue;
mod slice;

pub use self::{
    owned::SkBuff,
    owner::SkBuffOwner,
    queue::SkBuffQueue,
    slice::SkBuffSlice, //
};
