//! The place of a test: file system, device, kernel.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use sonar_sys::Host;
use sonar_sys::host::devices::{Device, DeviceKind};
use sonar_sys::host::mounts;
use sonar_view::disk::run::RunPlace;

/// The real path of a folder that an argument names.
///
/// # Errors
/// It does not exist, cannot be reached, or is not a folder.
pub fn folder(path: &Path) -> Result<PathBuf> {
    let real = path.canonicalize().with_context(|| format!("cannot open {}", path.display()))?;
    if !real.is_dir() {
        bail!("{} is not a folder", path.display());
    }
    Ok(real)
}

/// A folder, its mount and its device, as far as they are known.
pub struct Ground {
    /// Names of the device and of the disks below it.
    pub device: Option<String>,
    pub disks: Vec<String>,
    pub place: RunPlace,
}

impl Ground {
    /// Inspects the folder `dir`.
    pub fn of(dir: &Path) -> Self {
        let real = dir.canonicalize().unwrap_or_else(|_| dir.to_path_buf());
        let host = Host::live();
        let mount = host.mounts("self").ok();
        let mount = mount.and_then(|all| mounts::of(&all, &real).cloned());
        let devices = host.devices().unwrap_or_default();
        let device = mount.as_ref().and_then(|mount| devices.of_mount(mount));
        let disks: Vec<&Device> = device.map(|device| devices.disks(device)).unwrap_or_default();
        let first = disks.first().copied();
        let place = RunPlace {
            host: host.name(),
            dir: real.display().to_string(),
            file_system: mount.as_ref().map(|mount| mount.kind.clone()),
            mount_options: mount.as_ref().map(|mount| mount.options.clone()).unwrap_or_default(),
            device: device.map(|device| device.name.clone()),
            disks: others(device, &disks),
            model: first.and_then(|disk| match &disk.kind {
                DeviceKind::Disk { model } => model.clone(),
                DeviceKind::Loop { backing } => backing.as_ref().map(|file| format!("the file {file}")),
                _ => None,
            }),
            scheduler: first.and_then(|disk| devices.queue(disk).scheduler).map(|(chosen, _)| chosen),
            kernel: host.kernel(),
            processors: host.own_processors().unwrap_or(0),
        };
        Self { device: place.device.clone(), disks: place.disks.clone(), place }
    }

    /// Names of the device and its disks.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.device.iter().chain(&self.disks)
    }
}

fn others(device: Option<&Device>, disks: &[&Device]) -> Vec<String> {
    let names = disks.iter().map(|disk| disk.name.clone());
    names.filter(|name| device.is_none_or(|device| device.name != *name)).collect()
}
