#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/Device.h>
#include <c10/util/Registry.h>

#include <functional>
#include <memory>

namespace lockstep {

/// Work that a GPU's stream was given once, to be done again at each replay with one call of the driver.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;

  /// From now on the calling thread's current stream, which is not the default one, only notes what that
  /// thread gives it: nothing is computed. Whatever would make the host wait for the device meanwhile, or
  /// bring in another stream's work, throws c10::Error and breaks the capture.
  virtual void begin_capture() = 0;
  /// Throws c10::Error where the capture was broken. The stream computes again in either case.
  virtual void end_capture() = 0;
  /// Gives the calling thread's current stream the work, with the same memory as at the capture: tensors that
  /// were made meanwhile belong to the graph, and what nobody has kept of them is used again. Random
  /// operators draw anew from the generator.
  virtual void replay() = 0;
};

/// Makes graphs that share their memory, so that they are to be replayed in the order of their captures.
class DeviceGraphPool {
 public:
  virtual ~DeviceGraphPool() = default;
  virtual std::unique_ptr<DeviceGraph> make_graph() = 0;
  /// Marks what the calling thread's current stream was given until now. The result, which may outlive the
  /// pool, tells from any thread and without waiting whether the device has done it, and throws what the
  /// device reports.
  virtual std::function<bool()> watch_stream() = 0;
};

/// Graphs whose random operators draw from `generator`, which is of the same GPU; null where the build has
/// none.
std::unique_ptr<DeviceGraphPool> make_device_graph_pool(c10::Device device, const at::Generator& generator);

#ifndef LOCKSTEP_WITH_CUDA
/// Where a GPU that is not CUDA's says how its graphs are made, under the key "CUDA".
C10_DECLARE_REGISTRY(DeviceGraphPoolRegistry, DeviceGraphPool, c10::Device, const at::Generator&);
#endif

}  // namespace lockstep
