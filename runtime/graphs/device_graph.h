#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/util/Registry.h>

#include <functional>
#include <memory>

namespace lockstep {

/// Work of a GPU's stream that was captured once, and that one call of the driver repeats at each replay.
///
/// Example:
///
///     const auto graph = pool->make_graph();
///     graph->begin_capture();
///     sum.add_(gradient);
///     graph->end_capture();
///     graph->replay();
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// Starts to capture the calling thread's work on its current stream, which must not be the default stream.
  /// Nothing is computed. Anything that would make the host wait for the device, or that involves another
  /// stream's work, throws c10::Error and breaks the capture. No other thread may draw from the device's
  /// default generator meanwhile; see CaptureGuard.
  virtual void begin_capture() = 0;
  /// Ends the capture; the stream computes again. Makes all that the first replay needs, which may wait for
  /// the driver. Throws c10::Error if the capture was broken.
  virtual void end_capture() = 0;
  /// Repeats the work on the calling thread's current stream, with the memory of the capture. Tensors made
  /// during the capture belong to the graph; the memory of those that nobody kept is reused. Random operators
  /// draw new numbers from the generator.
  virtual void replay() = 0;
};

/// Makes graphs that share their memory, so replay them in the order of their captures.
///
/// Example:
///
///     const auto pool = make_device_graph_pool(replica.device(), replica.generator());
///     if (pool) auto graph = pool->make_graph();
class DeviceGraphPool {
 public:
  virtual ~DeviceGraphPool() = default;
  virtual std::unique_ptr<DeviceGraph> make_graph() = 0;
  /// Marks the end of the work given to the calling thread's current stream so far. The returned function
  /// says whether the device has done that work, and throws the device's errors. Any thread may call it; it
  /// does not wait, and may outlive the pool.
  virtual std::function<bool()> watch_stream() = 0;
};

/// Makes graphs whose random operators draw from `generator`, which must be of the same GPU. Returns null if
/// the build does not have graphs.
std::unique_ptr<DeviceGraphPool> make_device_graph_pool(c10::Device device, const at::Generator& generator);

#ifndef LOCKSTEP_WITH_CUDA
/// Registers how a GPU that is not CUDA's makes graphs, under the key "CUDA".
C10_DECLARE_REGISTRY(DeviceGraphPoolRegistry, DeviceGraphPool, c10::Device, const at::Generator&);
#endif

}  // namespace lockstep
