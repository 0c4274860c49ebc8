#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/runtime/backends/backend_factory.h"

namespace lockstep {

/// GPUs that a machine without any pretends to have, for builds without CUDA: linking fake_gpu.cpp into a
/// test program makes LibTorch see gpu:0 to gpu:7. Operators compute on the CPU, at once and in the calling
/// thread, and so give what a GPU would within rounding. Graphs of device work
/// (runtime/graphs/device_graph.h) are there, too.
///
/// Logical clocks follow the orders in which a GPU may work: each stream has a clock, and events carry it
/// from stream to stream. Work that does not wait for another stream's work, but should, is noted as a race,
/// although the values are right here. Calls that make the host wait for a device are counted. If the host
/// does not wait for a copy to its memory, it finds garbage there, and so does a GPU that copies it back too
/// early. Thread-safe.
namespace fake_gpu {

inline constexpr int kNumDevices = 8;

/// Returns the work that events do not order: an access to memory that another stream writes, or memory that
/// was freed and taken again while another stream uses it; and communicators of NCCL that ended while a graph
/// had kernels of theirs. One line each.
std::vector<std::string> races();
/// Returns the reason of each wait of the host for a device: values read, copies from or to memory that is
/// not pinned, streams and events synchronised with.
std::vector<std::string> host_waits();
/// Forgets races, host waits, captures, replays and calls of the driver; all work so far counts as done.
void forget();

/// Counts of what all threads have asked the driver for since forget(). An operator counts as one kernel, and
/// one on lists of tensors as many as LibTorch's kernels for lists take; a replay is one launch of a graph,
/// whatever is in it.
struct DriverCalls {
  int64_t kernels = 0;
  int64_t copies = 0;
  int64_t bytes_from_host = 0;  ///< copied from the host's memory to devices
  int64_t graph_launches = 0;
  int64_t event_records = 0;
  int64_t event_waits = 0;
  int64_t streams_recorded = 0;  ///< by Tensor::record_stream()
  int64_t allocations = 0;       ///< those that the allocator's cache could not serve
};
DriverCalls driver_calls();

/// Returns a line for each call that waits for the driver, made while a kernel of NCCL on another GPU of this
/// process waited for a rank: such a kernel and such a call may wait for each other for ever. The calls are
/// allocations that the cache could not serve, and making and destroying graphs.
std::vector<std::string> blocking_calls();

/// Returns how many streams of `device` have ever had work.
int used_streams(int device);

/// NCCL's manners on fake GPUs, for a BackendAllReduce: each rank has a stream of its own, which joins
/// captures; works are waited for by events; tensors are dense, contiguous and not empty, one a call.
/// Launches wait on the host for the other ranks' as kernels would on the devices, so that a rank that stays
/// away holds up the others' threads for 20 s. Sums are made in rank order.
BackendFactory nccl_factory();
/// Returns how many collectives ranks have launched or replayed, since forget().
int nccl_collectives();

/// Return how many graphs were captured, and how often graphs were replayed.
int captured_graphs();
int graph_replays();

/// From now on `device` has so many bytes, of which those of tensors on it are taken; an allocation beyond
/// throws c10::OutOfMemoryError, worded as CUDA's. Negative: no limit.
void limit_memory(int device, int64_t bytes);

/// From now on, as after a kernel that failed, all that `device` is given or asked throws
/// c10::AcceleratorError, until it `has_failed` no more.
void fail_device(int device, bool has_failed);

}  // namespace fake_gpu
}  // namespace lockstep
