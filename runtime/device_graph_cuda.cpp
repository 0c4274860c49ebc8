#include <ATen/cuda/CUDAGraph.h>

#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/runtime/device_graph.h"

namespace lockstep {
namespace {

/// Each graph registers itself with its device's default generator as well, whose list of graphs LibTorch
/// does not guard against replicas that capture, or end, at the same time.
std::mutex& registration() {
  static std::mutex mutex;
  return mutex;
}

class CapturedWork final : public DeviceGraph {
 public:
  CapturedWork(at::MempoolId_t pool, const at::Generator& generator) : pool_(pool) {
    const std::lock_guard<std::mutex> lock(registration());
    graph_.emplace();
    graph_->register_generator_state(generator);
  }
  ~CapturedWork() override {
    const std::lock_guard<std::mutex> lock(registration());
    graph_.reset();
  }

  // Of this thread only: replicas capture at the same time, and others may allocate meanwhile.
  void begin_capture() override {
    const std::lock_guard<std::mutex> lock(registration());
    graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
  }
  void end_capture() override {
    const std::lock_guard<std::mutex> lock(registration());
    graph_->capture_end();
  }
  void replay() override { graph_->replay(); }

 private:
  at::MempoolId_t pool_;
  std::optional<at::cuda::CUDAGraph> graph_;
};

class CudaGraphPool final : public DeviceGraphPool {
 public:
  explicit CudaGraphPool(at::Generator generator)
      : pool_(at::cuda::graph_pool_handle()), generator_(std::move(generator)) {}
  std::unique_ptr<DeviceGraph> make_graph() override {
    return std::make_unique<CapturedWork>(pool_, generator_);
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
