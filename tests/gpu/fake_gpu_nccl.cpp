// Mimics NCCL on fake GPUs.
#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/runtime/devices/device_streams.h"
#include "lockstep/tests/gpu/driver_calls.h"
#include "lockstep/tests/gpu/fake_gpu.h"
#include "lockstep/tests/gpu/fake_gpu_capture.h"
#include "lockstep/tests/gpu/fake_gpu_memory.h"
#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

using Deadline = std::chrono::steady_clock::time_point;

constexpr auto kLongestWait = std::chrono::seconds(20);

std::atomic<int> num_collectives{0};

struct Complaints {
  std::mutex mutex;
  std::vector<std::string> lines;
  std::vector<std::string> blocking_calls;
};

Complaints& complaints() {
  static auto* const complaints = new Complaints;
  return *complaints;
}

void require(bool condition, const std::string& message) {
  TORCH_CHECK_WITH(DistBackendError, condition, "fake NCCL: ", message);
}

/// One rank's part in a collective, on views of the devices' memory.
struct Part {
  std::string what;
  at::Tensor input;
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> inputs = {};  // of an all-to-all
};

/// Computes the results once the parts of all ranks are there.
using Kernel = std::function<void(const std::vector<Part>& parts)>;

/// State that the ranks share. Thread-safe.
class Communicator {
 public:
  explicit Communicator(int size) : size_(size) {}

  void connect(const std::string& device, Deadline deadline) {
    std::unique_lock lock(mutex_);
    require(std::find(devices_.begin(), devices_.end(), device) == devices_.end(), "Duplicate GPU detected");
    devices_.push_back(device);
    changed_.notify_all();
    changed_.wait_until(lock, deadline, [&] { return aborted_ || is_connected(); });
    require(!aborted_ && is_connected(), "not all ranks connected");
  }

  /// Blocks until all ranks have brought their parts. Throws if the parts do not match or a rank stays away.
  void exchange(int rank, Part part, const Kernel& kernel) {
    std::unique_lock lock(mutex_);
    const auto number = next_[rank]++;
    Round& round = rounds_[number];
    round.parts.emplace(rank, std::move(part));
    if (static_cast<int>(round.parts.size()) == size_) {
      std::vector<Part> parts;
      for (auto& [at, brought] : round.parts) parts.push_back(brought);
      round.fits = std::all_of(parts.begin(), parts.end(),
                               [&](const Part& other) { return other.what == parts[0].what; });
      if (round.fits) kernel(parts);
      round.is_done = true;
      changed_.notify_all();
    }
    changed_.wait_for(lock, kLongestWait, [&] { return round.is_done || aborted_; });
    const bool is_done = round.is_done;
    const bool fits = round.fits;
    if (++round.left == size_) rounds_.erase(number);
    require(!is_done || fits, "the ranks called different collectives");
    require(is_done || aborted_, "a rank has not launched its collective");
  }

  /// Returns a collective that only some ranks have launched yet, or nothing.
  std::optional<std::string> waiting_kernel() {
    const std::lock_guard lock(mutex_);
    if (aborted_) return std::nullopt;
    for (const auto& [number, round] : rounds_) {
      if (!round.is_done && !round.parts.empty()) return round.parts.begin()->second.what;
    }
    return std::nullopt;
  }

  /// Ends the collectives under way, which leave garbage in the tensors.
  void abort() {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    changed_.notify_all();
  }

 private:
  struct Round {
    std::map<int, Part> parts;
    int left = 0;
    bool fits = false;
    bool is_done = false;
  };

  bool is_connected() const { return static_cast<int>(devices_.size()) == size_; }

  const int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> devices_;
  std::map<int, uint64_t> next_;
  std::map<uint64_t, Round> rounds_;
  bool aborted_ = false;
};

struct Communicators {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Communicator>> by_name;
};

Communicators& communicators() {
  static auto* const communicators = new Communicators;
  return *communicators;
}

/// Returns the communicator of this name, the same for every caller.
std::shared_ptr<Communicator> communicator_named(const std::string& id, int size) {
  const std::lock_guard lock(communicators().mutex);
  auto communicator = communicators().by_name[id].lock();
  if (!communicator) communicators().by_name[id] = communicator = std::make_shared<Communicator>(size);
  return communicator;
}

void all_reduce(const std::vector<Part>& parts, bool is_mean) {
  at::Tensor sum = parts[0].input.clone();
  for (size_t rank = 1; rank < parts.size(); ++rank) sum.add_(parts[rank].input);
  if (is_mean) sum.div_(static_cast<int64_t>(parts.size()));
  for (const auto& part : parts) part.outputs[0].copy_(sum);
}

void reduce_scatter(const std::vector<Part>& parts, bool is_mean) {
  at::Tensor sum = parts[0].input.clone();
  for (size_t rank = 1; rank < parts.size(); ++rank) sum.add_(parts[rank].input);
  if (is_mean) sum.div_(static_cast<int64_t>(parts.size()));
  const auto shares = sum.chunk(static_cast<int64_t>(parts.size()));
  for (size_t rank = 0; rank < parts.size(); ++rank) parts[rank].outputs[0].copy_(shares[rank]);
}

void all_to_all(const std::vector<Part>& parts) {
  for (size_t to = 0; to < parts.size(); ++to) {
    for (size_t from = 0; from < parts.size(); ++from) parts[to].outputs[from].copy_(parts[from].inputs[to]);
  }
}

void broadcast(const std::vector<Part>& parts, size_t root) {
  for (const auto& part : parts) part.outputs[0].copy_(parts[root].input);
}

void all_gather(const std::vector<Part>& parts) {
  for (const auto& part : parts) {
    for (size_t rank = 0; rank < parts.size(); ++rank) part.outputs[rank].copy_(parts[rank].input);
  }
}

class NcclWork final : public c10d::Work {
 public:
  NcclWork(int rank, c10d::OpType type, c10::Device device, std::vector<at::Tensor> tensors)
      : Work(rank, type), device_(device), tensors_(std::move(tensors)), end_(c10::DeviceType::CUDA) {}

  void record(const c10::Stream& stream) { end_.record(stream); }
  bool isCompleted() override { return end_.query(); }
  bool wait(std::chrono::milliseconds) override {
    end_.block(lockstep::current_stream(device_));
    tensors_.clear();  // their memory is reused only after that stream's work
    return true;
  }

 private:
  const c10::Device device_;
  std::vector<at::Tensor> tensors_;
  c10::Event end_;
};

class Nccl final : public c10d::Backend {
 public:
  explicit Nccl(const BackendRequest& request)
      : Backend(request.rank, request.size),
        request_(request),
        device_(request.device.torch_device()),
        stream_(c10::Stream::UNSAFE, device_, next_stream()) {
    require(device_.is_cuda(), "no GPU");
  }
  ~Nccl() override { end(); }

  const std::string getBackendName() const override { return "fake_gpu_nccl"; }

  void eagerConnectSingleDevice(at::Device) override {
    // Like NCCL's unique id: rank 0 makes it and the store hands it on.
    static std::atomic<int> next_id{0};
    if (getRank() == 0) request_.store->set("id", std::to_string(next_id++));
    const auto communicator = communicator_named(request_.store->get_to_str("id"), getSize());
    {
      const std::lock_guard lock(mutex_);
      communicator_ = communicator;
    }
    communicator->connect(device_.str(), std::chrono::steady_clock::now() + request_.timeout);
  }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const c10d::ReduceOp::RedOpType op = options.reduceOp;
    require(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, "only sums and means");
    require(tensors.size() == 1, "Expecting one tensor only but got multiple");
    const bool is_mean = op == c10d::ReduceOp::AVG;
    return launch(c10d::OpType::ALLREDUCE, is_mean ? "mean" : "sum", tensors[0], tensors,
                  [is_mean](const auto& parts) { all_reduce(parts, is_mean); });
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    require(tensors.size() == 1, "Expecting one tensor only but got multiple");
    const auto root = static_cast<size_t>(options.rootRank);
    return launch(c10d::OpType::BROADCAST, "broadcast from " + std::to_string(root), tensors[0], tensors,
                  [root](const auto& parts) { fake_gpu::broadcast(parts, root); });
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions&) override {
    require(output.numel() == getSize() * input.numel(),
            "output tensor size must be the number of ranks times");
    return launch(c10d::OpType::ALLGATHER, "all_gather", input, output.view({getSize(), -1}).unbind(0),
                  &all_gather);
  }

  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& options) override {
    const c10d::ReduceOp::RedOpType op = options.reduceOp;
    require(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG, "only sums and means");
    require(input.numel() == getSize() * output.numel(),
            "input tensor must be the same size as output size times world size");
    const bool is_mean = op == c10d::ReduceOp::AVG;
    return launch(c10d::OpType::_REDUCE_SCATTER_BASE, is_mean ? "scattered mean" : "scattered sum", input,
                  {output}, [is_mean](const auto& parts) { fake_gpu::reduce_scatter(parts, is_mean); });
  }

  c10::intrusive_ptr<c10d::Work> alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                                          const c10d::AllToAllOptions&) override {
    return launch(c10d::OpType::ALLTOALL, "all_to_all", at::empty({1}, inputs[0].options()), outputs,
                  &all_to_all, inputs);
  }

  /// Like NCCL's, releases the kernels at once, and returns when no graph holds any of them.
  void abort() override {
    if (const auto communicator = this->communicator()) communicator->abort();
    const auto deadline = std::chrono::steady_clock::now() + kLongestWait;
    while (in_graphs_.use_count() > 1 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    end();
  }
  void shutdown() override { end(); }

 private:
  static int64_t next_stream() {
    static std::atomic<int64_t> next{kFirstJoiningStream};
    return next++;
  }

  std::shared_ptr<Communicator> communicator() {
    const std::lock_guard lock(mutex_);
    return communicator_;
  }

  void end() {
    const std::lock_guard lock(mutex_);
    if (has_ended_.exchange(true) || in_graphs_.use_count() == 1) return;
    const std::lock_guard complaining(complaints().mutex);
    complaints().lines.push_back("a communicator of NCCL ended while a graph had kernels of it");
  }

  c10::intrusive_ptr<c10d::Work> launch(c10d::OpType type, const std::string& what, const at::Tensor& input,
                                        const std::vector<at::Tensor>& outputs, Kernel kernel,
                                        const std::vector<at::Tensor>& inputs = {}) {
    std::vector<at::Tensor> all = outputs;
    all.insert(all.end(), inputs.begin(), inputs.end());
    if (!inputs.empty()) std::erase_if(all, [](const at::Tensor& tensor) { return tensor.numel() == 0; });
    all.push_back(input);
    for (const auto& tensor : all) {
      require(tensor.device() == device_, "a tensor on another device");
      require(tensor.is_contiguous(), "Tensors must be contiguous");
      require(tensor.numel() > 0 && !tensor.is_complex(), "elements that it has no type for, or none");
    }
    const auto communicator = this->communicator();
    require(communicator && !has_ended_, "NCCL communicator was aborted");

    c10::Event begin(c10::DeviceType::CUDA);
    begin.record(lockstep::current_stream(device_));
    begin.block(stream_);
    const StreamName stream{stream_.device_index(), stream_.id()};
    Work work{.name = "ncclKernel " + what, .reads = {range_of(input)}};
    Part part{what + ' ' + c10::toString(input.scalar_type()) + '[' + std::to_string(input.numel()) + ']',
              host_view(input),
              {}};
    for (const auto& output : outputs) {
      if (output.numel() > 0) work.writes.push_back(range_of(output));
      part.outputs.push_back(host_view(output));
    }
    for (const auto& sent : inputs) {
      if (sent.numel() > 0) work.reads.push_back(range_of(sent));
      part.inputs.push_back(host_view(sent));
    }
    const auto compute = [communicator, rank = getRank(), part, kernel = std::move(kernel)] {
      ++num_collectives;
      communicator->exchange(rank, part, kernel);
    };
    if (const auto capture = capture_for_work(stream)) {
      for (const auto& tensor : all) work.memory.emplace_back(block_at(tensor.const_data_ptr()));
      work.compute = [compute, in_graph = in_graphs_] { compute(); };
      capture->note(stream, std::move(work));
    } else {
      count_call(&DriverCalls::kernels);
      order().launch(stream, work.name, work.reads, work.writes);
      compute();
    }
    auto launched = c10::make_intrusive<NcclWork>(getRank(), type, device_, std::move(all));
    launched->record(stream_);
    return launched;
  }

  const BackendRequest request_;
  const c10::Device device_;
  const c10::Stream stream_;
  const std::shared_ptr<char> in_graphs_ = std::make_shared<char>();  // every kernel in a graph holds it
  std::mutex mutex_;
  std::shared_ptr<Communicator> communicator_;
  std::atomic<bool> has_ended_{false};
};

}  // namespace

BackendFactory nccl_factory() {
  return [](const BackendRequest& request) { return c10::make_intrusive<Nccl>(request); };
}

int nccl_collectives() {
  return num_collectives;
}

std::vector<std::string> nccl_complaints() {
  const std::lock_guard lock(complaints().mutex);
  return complaints().lines;
}

void note_blocking_call(const std::string& what) {
  std::vector<std::shared_ptr<Communicator>> alive;
  {
    const std::lock_guard lock(communicators().mutex);
    for (const auto& [name, weak] : communicators().by_name) {
      if (auto communicator = weak.lock()) alive.push_back(std::move(communicator));
    }
  }
  for (const auto& communicator : alive) {
    const auto kernel = communicator->waiting_kernel();
    if (!kernel) continue;
    const std::lock_guard lock(complaints().mutex);
    complaints().blocking_calls.push_back(what + " while " + *kernel + " waited for a rank");
  }
}

std::vector<std::string> blocking_calls() {
  const std::lock_guard lock(complaints().mutex);
  return complaints().blocking_calls;
}

void forget_nccl() {
  num_collectives = 0;
  const std::lock_guard lock(complaints().mutex);
  complaints().lines.clear();
  complaints().blocking_calls.clear();
}

}  // namespace lockstep::fake_gpu
