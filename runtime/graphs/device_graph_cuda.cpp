#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/runtime/graphs/device_graph.h"

namespace lockstep {
namespace {

/// Each graph also registers with its device's default generator. LibTorch does not guard the generator's
/// list of graphs against replicas that capture, or destroy graphs, at the same time.
std::mutex& registration() {
  static std::mutex mutex;
  return mutex;
}

class Graph : public at::cuda::CUDAGraph {
 public:
  /// Cleans up after a broken capture, which CUDAGraph does not do: the allocators would keep asking this
  /// graph where memory belongs, and the generators would still consider themselves captured.
  void give_up() {
    if (capture_ended_ || capture_dev_ == UNDEFINED_DEVICE) return;
    // capture_end() refuses before it ends the capture if another stream is current.
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(capture_stream_, &status) == cudaSuccess &&
        status != cudaStreamCaptureStatusNone) {
      cudaGraph_t broken = nullptr;
      if (cudaStreamEndCapture(capture_stream_, &broken) == cudaSuccess && broken != nullptr)
        (void)cudaGraphDestroy(broken);
    }
    (void)cudaGetLastError();
    const auto attempt = [](const auto& undo) {
      try {
        undo();
      } catch (const c10::Error&) {
        // The capture did not get this far.
      }
    };
    namespace allocator = c10::cuda::CUDACachingAllocator;
    auto* pinned = at::getHostAllocator(at::kCUDA);
    attempt([&] { allocator::endAllocateToPool(capture_dev_, mempool_id_); });
    attempt([&] { allocator::releasePool(capture_dev_, mempool_id_); });
    attempt([&] { pinned->end_allocate_to_pool(mempool_id_); });
    attempt([&] { pinned->release_pool(mempool_id_); });
    for (auto& [state, increment] : captured_generator_states_) state->capturing_ = false;
  }
};

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

  // Captures this thread only: replicas capture at the same time, and others may allocate meanwhile.
  void begin_capture() override {
    const std::lock_guard<std::mutex> lock(registration());
    try {
      graph_->capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    } catch (...) {
      graph_->give_up();
      throw;
    }
  }
  void end_capture() override {
    const std::lock_guard<std::mutex> lock(registration());
    try {
      // The first launch copies the graph to the device. cudaGraphUpload() would do it here, but driver 580
      // crashes in it if NCCL_LAUNCH_ORDER_IMPLICIT is set and the graph has a kernel of NCCL.
      graph_->capture_end();
    } catch (...) {
      graph_->give_up();
      throw;
    }
  }
  void replay() override { graph_->replay(); }

 private:
  at::MempoolId_t pool_;
  std::optional<Graph> graph_;
};

class CudaGraphPool final : public DeviceGraphPool {
 public:
  explicit CudaGraphPool(at::Generator generator)
      : pool_(at::cuda::graph_pool_handle()), generator_(std::move(generator)) {}
  std::unique_ptr<DeviceGraph> make_graph() override {
    return std::make_unique<CapturedWork>(pool_, generator_);
  }
  std::function<bool()> watch_stream() override {
    const auto end = std::make_shared<at::cuda::CUDAEvent>();
    end->record();
    return [end] { return end->query(); };
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
