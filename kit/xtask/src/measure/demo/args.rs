// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `demo`.

use bytesize::ByteSize;

use super::arm::Arm;

#[derive(clap::Args)]
pub struct Args {
    /// Send this much data through each arm
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    pub bytes: ByteSize,
    /// Compare these arms, which are ways to move the bytes: directly (the sender speaks vsock
    /// itself), or through socat, the C sockmap or the Rust sockmap
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_value = "direct,socat,c,rust"
    )]
    pub arms: Vec<Arm>,
    /// How many seconds each arm may take
    #[arg(long, value_name = "S", default_value_t = 180)]
    pub limit: u64,
}
