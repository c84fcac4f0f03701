//! Names of the devices that hold recorded files.

use std::collections::HashSet;
use std::path::Path;

use sonar_sys::Host;
use sonar_sys::host::devices::Devices;
use sonar_sys::host::mounts;

/// The most devices to record by name.
const MAX_DEVICES: usize = 1_024;

/// Reports the name of each device once.
#[derive(Default)]
pub struct DeviceNames {
    devices: Option<Devices>,
    named: HashSet<u64>,
}

impl DeviceNames {
    /// For the first file on this device (in the kernel's encoding): the names of the device and of the disks below it,
    /// separated by spaces. `None` for later files, and for a device without a name.
    pub fn first(&mut self, device: u64, path: &str) -> Option<String> {
        if self.named.len() >= MAX_DEVICES || !self.named.insert(device) {
            return None;
        }
        let devices = self.devices.get_or_insert_with(|| Host::live().devices().unwrap_or_default());
        let (major, minor) = (u32::try_from(device >> 20).ok()?, (device & 0xf_ffff) as u32);
        let found = devices.numbered(major, minor).map(|device| device.name.clone()).or_else(|| {
            // A file system on several devices has its own device number.
            let all = Host::live().mounts("self").ok()?;
            Some(devices.of_mount(mounts::of(&all, Path::new(path))?)?.name.clone())
        })?;
        let device = devices.named(&found)?;
        let below = devices.below(device).into_iter().map(|device| device.name.as_str());
        Some(std::iter::once(found.as_str()).chain(below).collect::<Vec<_>>().join(" "))
    }
}
