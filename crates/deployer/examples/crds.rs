//! Writes the CustomResourceDefinitions to a folder; `cargo xtask crds` runs it.

use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    let folder = std::env::args_os().nth(1).ok_or_else(|| io::Error::other("usage: crds FOLDER"))?;
    for (name, text) in billhook_deployer::crds::files()? {
        fs::write(Path::new(&folder).join(name), text)?;
    }
    Ok(())
}
