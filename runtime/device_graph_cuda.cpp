#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include "lockstep/runtime/device_graph.h"

namespace lockstep {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  CudaGraph(at::MempoolId_t pool, const at::Generator& generator) : pool_(pool) {
    graph_.register_generator_state(generator);
  }

  // Of this thread only: replicas capture at the same time, and others may allocate meanwhile.
  void begin_capture() override { graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal); }
  void end_capture() override { graph_.capture_end(); }
  void replay() override { graph_.replay(); }

 private:
  at::MempoolId_t pool_;
  at::cuda::CUDAGraph graph_;
};

class CudaGraphPool final : public DeviceGraphPool {
 public:
  explicit CudaGraphPool(at::Generator generator)
      : pool_(at::cuda::graph_pool_handle()), generator_(std::move(generator)) {}
  std::unique_ptr<DeviceGraph> make_graph() override {
    return std::make_unique<CudaGraph>(pool_, generator_);
  }

 private:
  at::MempoolId_t pool_;
  at::Generator generator_;
};

}  // namespace

std::unique_ptr<DeviceGraphPool> make_device_graph_pool(c10::Device, const at::Generator& generator) {
  return std::make_unique<CudaGraphPool>(generator);
}

}  // namespace lockstep
