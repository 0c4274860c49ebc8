#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Stream.h>

#include "lockstep/runtime/devices/device.h"

namespace lockstep {

/// Abilities that a backend of LibTorch need not have. CUDA's has all of them.
struct DeviceTraits {
  /// Its streams come from a pool. Without one, all work of a device is on its default stream, in the order
  /// in which threads give it.
  bool has_stream_pool = true;
  /// Events can be recorded on its streams and waited for.
  bool has_events = true;
  /// It tells whether a stream's work is done, and so whether the device has failed.
  bool has_stream_queries = true;
  /// The host can wait for one of its streams, and not only for the whole device.
  bool has_stream_waits = true;
  /// Tensors of float64 can be made and added. Some devices have no such numbers.
  bool has_float64 = true;
  /// It copies from pinned memory while the host continues.
  bool has_pinned_memory = true;
};

/// Returns the abilities of an accelerator's type. The first call for a type tries them on its first device,
/// which must exist, and blocks meanwhile; CUDA is not asked.
/// Rethrows LibTorch's errors for a device that has no memory left or has failed, and asks again at the next
/// call. Thread-safe.
const DeviceTraits& device_traits(c10::DeviceType type);

/// Blocks until the stream's work is done, or that of its whole device if the backend cannot wait for a
/// stream. Rethrows the device's errors.
void synchronize_stream(const c10::Stream& stream);

/// Returns float64 for devices that have it, else float32: the dtype for sums that need many digits.
c10::ScalarType widest_float(c10::Device device);

/// Throws InvalidArgument if the backend of `device` makes tensors on another device than the one asked for,
/// as backends that have one device a process do. Does nothing for CPUs and CUDA.
void check_index_is_kept(const LogicalDevice& device);

}  // namespace lockstep
