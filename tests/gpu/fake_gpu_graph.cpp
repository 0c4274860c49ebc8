// The fake GPU's graphs of device work, for runtime/graphs/device_graph.h.
#include <ATen/core/Generator.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "lockstep/runtime/graphs/device_graph.h"
#include "lockstep/tests/gpu/driver_calls.h"
#include "lockstep/tests/gpu/fake_gpu.h"
#include "lockstep/tests/gpu/fake_gpu_capture.h"
#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

std::atomic<int> num_captured{0};
std::atomic<int> num_replays{0};

/// Returns the first of the streams for a graph's branches, none of which is a stream of the device.
int64_t reserve_branches() {
  constexpr int64_t kMostBranches = 64;
  static std::atomic<int64_t> next{int64_t{1} << 32};
  return next.fetch_add(kMostBranches);
}

/// Stands for the memory that the graphs of a pool share: each replay writes to it, so that unordered replays
/// are a race.
class SharedMemory {
 public:
  explicit SharedMemory(c10::Device device) { order().reserve({device.index(), 0}, range()); }
  ~SharedMemory() { order().unreserve(&byte_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  StreamOrder::Range range() const { return {&byte_, 1}; }

 private:
  char byte_ = 0;
};

class Graph final : public DeviceGraph {
 public:
  Graph(c10::Device device, at::Generator generator, std::shared_ptr<SharedMemory> shared)
      : device_(device), generator_(std::move(generator)), shared_(std::move(shared)) {}
  // Like CUDA's, leaves the stream capturing: the code that began must end. Here the next operator reports
  // it.
  ~Graph() override {
    if (capture_) capture_->invalidate();
    if (is_captured_) note_blocking_call("a graph was destroyed");
  }

  void begin_capture() override {
    TORCH_CHECK(!is_captured_ && !capture_,
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, create a new "
                "instance.");
    capture_ = fake_gpu::begin_capture(current_stream(device_), {generator_});
  }

  void end_capture() override {
    TORCH_CHECK(capture_, "capture_end without a capture_begin");
    captured_ = fake_gpu::end_capture(capture_, current_stream(device_));
    note_blocking_call("a graph was made");
    for (const auto& block : captured_.memory) {
      if (!block->is_held) unkept_.push_back(block);
    }
    is_captured_ = true;
    ++num_captured;
  }

  void replay() override {
    TORCH_CHECK(is_captured_, "Called CUDAGraph::replay without a preceding successful capture.");
    const StreamName stream = current_stream(device_);
    if (const auto capture = capture_for_work(stream)) capture->fail(kNotPermitted);
    count_call(&DriverCalls::graph_launches);
    for (const auto& work : captured_.work) {
      for (const auto& memory : work.memory)
        TORCH_CHECK(!memory.expired(), "memory that ", work.name, " uses was freed after the capture");
    }
    // CUDA runs a graph's launches one after the other, whatever their streams.
    order().wait(stream, last_replay_);
    order().launch(stream, "a graph's replay", {}, {shared_->range()});
    std::vector<Clock> events(captured_.num_events);
    for (const auto& work : captured_.work) {
      const StreamName on{stream.device,
                          work.branch == 0 ? stream.id : branches_ + static_cast<int64_t>(work.branch)};
      if (work.recorded) {
        events[*work.recorded] = order().record(on);
        continue;
      }
      if (work.awaited) {
        order().wait(on, events[*work.awaited]);
        continue;
      }
      order().launch(on, work.name, work.reads, work.writes);
      const c10::impl::ForceDispatchKeyGuard as_at_the_capture(work.dispatch_keys);
      work.compute();
    }
    last_replay_ = order().record(stream);
    for (const auto& block : captured_.memory) block->before_replay.clear();
    // Other graphs of this pool may use this memory by now.
    for (const auto& block : unkept_) fill_with_garbage(*block);
    ++num_replays;
  }

 private:
  const c10::Device device_;
  const at::Generator generator_;
  const std::shared_ptr<SharedMemory> shared_;
  std::shared_ptr<Capture> capture_;
  bool is_captured_ = false;
  Captured captured_;
  const int64_t branches_ = reserve_branches();
  std::vector<std::shared_ptr<Block>> unkept_;
  Clock last_replay_;
};

class GraphPool final : public DeviceGraphPool {
 public:
  GraphPool(c10::Device device, const at::Generator& generator)
      : device_(device), generator_(generator), shared_(std::make_shared<SharedMemory>(device)) {
    TORCH_CHECK(generator.device() == device, "Expected a generator of ", device, ", but got one of ",
                generator.device());
  }
  std::unique_ptr<DeviceGraph> make_graph() override {
    return std::make_unique<Graph>(device_, generator_, shared_);
  }
  // Everything is computed when it is launched.
  std::function<bool()> watch_stream() override {
    return [] { return true; };
  }

 private:
  const c10::Device device_;
  const at::Generator generator_;
  const std::shared_ptr<SharedMemory> shared_;
};

}  // namespace

int captured_graphs() {
  return num_captured;
}

int graph_replays() {
  return num_replays;
}

void forget_graphs() {
  num_captured = 0;
  num_replays = 0;
}

}  // namespace lockstep::fake_gpu

namespace lockstep {

C10_REGISTER_CLASS(DeviceGraphPoolRegistry, CUDA, fake_gpu::GraphPool)

}  // namespace lockstep
