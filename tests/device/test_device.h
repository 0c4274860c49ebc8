#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// An accelerator that every machine has, for tests of code that must run on any device of LibTorch: linking
/// lockstep_test_device into a program makes LibTorch see testdevice:0 to testdevice:3. It uses only what
/// LibTorch offers to a backend outside of it (the PrivateUse1 keys, hooks, a device guard, allocators and
/// generators) and needs nothing of Lockstep, so code that works here has no special case for one vendor.
///
/// Its memory is the host's, and the CPU's kernels compute in it: an operator gives the bits that the CPU
/// gives, and a generator draws a CPU generator's numbers. Memory, copies, views, convolutions,
/// normalisation, attention, random numbers, sparse gradients, autocast and autograd are there. As on most
/// devices, lists of tensors, SyncBatchNorm and fused recurrent cells have no kernels of their own: LibTorch
/// takes lists apart, and refuses LSTM and GRU.
///
/// Operators run in the calling thread, at once, so that every run gives the same values and errors. A thread
/// for each stream would show a missing wait only if it lost a race. Here each stream has a logical clock
/// that events carry to other streams, and races() reports every access that no event orders, whatever the
/// timing. A copy to pinned memory that the host does not wait for holds garbage until it does. Thread-safe.
namespace test_device {

inline constexpr const char* kName = "testdevice";
inline constexpr int kMaxDevices = 16;

/// Sets how many devices there are; 4 without it. Throws c10::Error unless `count` is in [0, kMaxDevices],
/// and after LibTorch or a test has used a device or asked for their number.
void set_device_count(int count);

/// Returns the device with this index.
c10::Device device(int index);

/// From now on `device` has so many bytes, of which those of tensors on it are taken; an allocation beyond
/// throws c10::OutOfMemoryError, which says what was wanted and what was free. Negative: no limit but the
/// host's memory. c10::getDeviceAllocator() has the bytes in use and their peak.
void limit_memory(int device, int64_t bytes);

enum class Fault {
  kLost,         ///< this operator and all that is asked of the device later throw c10::AcceleratorError
  kOutOfMemory,  ///< this operator throws c10::OutOfMemoryError, later ones do their work
};

/// Lets the `number`-th operator from now on fail on `device`; 1 is the next one. Operators are kernels and
/// copies, not views or allocations. A copy between devices counts on both.
void fail_at_operator(int device, int64_t number, Fault fault);
/// Undoes faults of `device`, those that are still to come included.
void repair(int device);
/// Returns how many operators `device` has begun since the program started.
int64_t operators_begun(int device);

/// From now on the backend refuses what plugins need not have: streams from a pool, events, queries of
/// streams and waits for one stream, pinned memory, and memory that is used on several streams. Call it
/// before the first use of a device.
void lack_abilities();

/// From now on each operator takes `factor` times as long on `device`: the thread that calls it sleeps for
/// the rest of the time. Sleeps of less than a millisecond are made up later, at the latest when the host
/// waits for the device. Throws c10::Error if `factor` is less than 1. The variable TEST_DEVICE_SLOWDOWN has
/// the factor of all devices at the start.
void slow_down(int device, double factor);

/// Returns the work that events do not order: an access to memory that another stream writes, or memory that
/// was freed and taken again while another stream uses it. One line each.
std::vector<std::string> races();
/// Returns the reason of each wait of the host for a device: values read, copies from or to memory that is
/// not pinned, streams and events synchronised with.
std::vector<std::string> host_waits();
/// Forgets races and host waits; all work so far counts as done.
void forget();

}  // namespace test_device
}  // namespace lockstep
