#include "lockstep/tests/strategies/fake_nccl.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

namespace lockstep {

using std::chrono::steady_clock;
using Fault = FakeNcclWorld::Fault;

/// One rank's part in a collective.
struct FakeNccl::Call {
  c10d::OpType type;
  std::string text;
  at::Tensor input;
  at::Tensor output;
  c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::SUM;
  int source = 0;
  c10::intrusive_ptr<Work> work;
};

class FakeNccl::Work : public c10d::Work {
 public:
  Work(int rank, c10d::OpType type) : c10d::Work(rank, type) {}

  bool isCompleted() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return completed_;
  }
  std::exception_ptr exception() const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return exception_;
  }
  bool wait(std::chrono::milliseconds) override {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!completed_ && !leaves_host_free_) cv_.wait_for(lock, std::chrono::milliseconds(20));
    if (late_) {
      exception_ = std::exchange(late_, nullptr);
      return true;
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }

  /// As on a GPU, whose streams wait instead of the host.
  void leave_host_free() { leaves_host_free_ = true; }

  void end(const std::string& error = "", bool late = false) {
    const std::lock_guard<std::mutex> lock(mutex_);
    completed_ = true;
    if (!error.empty()) (late ? late_ : exception_) = std::make_exception_ptr(std::runtime_error(error));
    cv_.notify_all();
  }

 private:
  std::exception_ptr late_;
  bool leaves_host_free_ = false;  // set before the launch
};

/// Where the ranks' calls meet: call number n of each.
class FakeCommunicator {
 public:
  explicit FakeCommunicator(int size)
      : size_(size), next_(static_cast<size_t>(size), 0), aborted_(static_cast<size_t>(size), 0) {}

  /// Blocks until all ranks are here; whether they are.
  bool connect(int rank, const std::string& device, steady_clock::time_point deadline) {
    MutexLock lock(mutex_);
    if (!devices_.insert(device).second) throw std::runtime_error("Duplicate GPU detected: " + device);
    changed_.notify_all();
    const auto self = static_cast<size_t>(rank);
    while (static_cast<int>(devices_.size()) < size_ && !aborted_[self]) {
      if (!changed_.wait_until(mutex_, deadline)) return false;
    }
    return !aborted_[self];
  }

  /// Blocks until all ranks have brought their call of this number; nothing where that cannot happen.
  std::vector<FakeNccl::Call> exchange(int rank, const FakeNccl::Call& call,
                                       steady_clock::time_point deadline) {
    FakeNccl::Call brought = call;
    brought.input = call.input.clone();
    MutexLock lock(mutex_);
    const auto self = static_cast<size_t>(rank);
    const size_t number = next_[self]++;
    auto& calls = calls_[number];
    calls.emplace(rank, std::move(brought));
    changed_.notify_all();
    while (static_cast<int>(calls.size()) < size_ && !aborted_[self]) {
      if (!changed_.wait_until(mutex_, deadline)) return {};
    }
    if (aborted_[self]) return {};
    std::vector<FakeNccl::Call> all;
    for (const auto& [other, theirs] : calls) all.push_back(theirs);
    return all;
  }

  /// Ends this rank's waits; the others' go on.
  void abort(int rank) {
    MutexLock lock(mutex_);
    aborted_[static_cast<size_t>(rank)] = 1;
    changed_.notify_all();
  }

 private:
  const int size_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::set<std::string> devices_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<size_t, std::map<int, FakeNccl::Call>> calls_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<size_t> next_ LOCKSTEP_GUARDED_BY(mutex_);
  std::vector<char> aborted_ LOCKSTEP_GUARDED_BY(mutex_);
};

namespace {

void execute(const FakeNccl::Call& own, const std::vector<FakeNccl::Call>& all) {
  at::Tensor output = own.output;
  for (const auto& other : all) {
    if (other.type == own.type && other.input.numel() == own.input.numel() &&
        other.input.scalar_type() == own.input.scalar_type())
      continue;
    std::memset(output.data_ptr(), 0xA5, output.nbytes());  // what NCCL makes of it is anybody's guess
    return;
  }
  if (own.type == c10d::OpType::BROADCAST) {
    output.copy_(all[static_cast<size_t>(own.source)].input);
  } else if (own.type == c10d::OpType::ALLGATHER) {
    for (size_t rank = 0; rank < all.size(); ++rank)
      output[static_cast<int64_t>(rank)].copy_(all[rank].input);
  } else {
    at::Tensor total = all[0].input.clone();
    for (size_t rank = 1; rank < all.size(); ++rank) {
      const at::Tensor& value = all[rank].input;
      if (own.reduction == c10d::ReduceOp::MAX) {
        total = at::maximum(total, value);
      } else if (own.reduction == c10d::ReduceOp::MIN) {
        total = at::minimum(total, value);
      } else if (own.reduction == c10d::ReduceOp::PRODUCT) {
        total.mul_(value);
      } else {
        total.add_(value);
      }
    }
    if (own.reduction == c10d::ReduceOp::AVG) total.div_(static_cast<int64_t>(all.size()));
    output.copy_(total);
  }
}

std::string describe_call(const std::string& operation, const at::Tensor& tensor) {
  return operation + " " + c10::toString(tensor.scalar_type()) + "[" + std::to_string(tensor.numel()) + "]";
}

void require(bool condition, const char* message) {
  TORCH_CHECK_WITH(DistBackendError, condition, "fake NCCL: ", message);
}

void require_dense(const at::Tensor& tensor) {
  require(tensor.layout() == at::kStrided && tensor.is_contiguous(), "Tensors must be contiguous");
  require(tensor.numel() > 0, "a tensor without elements");
  require(!tensor.is_complex(), "Unconvertible NCCL type");
}

}  // namespace

/// Executes one rank's calls in their order.
class FakeNccl::Stream {
 public:
  Stream(int rank, std::shared_ptr<FakeCommunicator> communicator, std::chrono::milliseconds timeout)
      : rank_(rank), communicator_(std::move(communicator)), timeout_(timeout), thread_([this] { run(); }) {}
  ~Stream() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  /// `fault`: how the call fails, at `when`; empty: it does not.
  void push(Call call, std::string fault, Fault when) {
    MutexLock lock(mutex_);
    queue_.push_back({std::move(call), std::move(fault), when, steady_clock::now() + timeout_});
    changed_.notify_all();
  }
  /// Blocks until nothing is left to do.
  void finish() {
    MutexLock lock(mutex_);
    while (!queue_.empty()) changed_.wait(mutex_);
  }

 private:
  struct Entry {
    Call call;
    std::string fault;
    Fault when;
    steady_clock::time_point deadline;
  };

  void run() {
    while (true) {
      Entry entry;
      {
        MutexLock lock(mutex_);
        while (queue_.empty() && !stopping_) changed_.wait(mutex_);
        if (queue_.empty()) return;
        entry = queue_.front();
      }
      if (entry.when == Fault::kCall) {
        entry.call.work->end(entry.fault);
      } else {
        if (entry.when == Fault::kSlow) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const auto all = communicator_->exchange(rank_, entry.call, entry.deadline);
        if (!all.empty()) execute(entry.call, all);
        if (entry.when == Fault::kLater) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        const bool late = steady_clock::now() >= entry.deadline;
        entry.call.work->end(!all.empty() ? entry.fault
                             : late       ? "Watchdog caught collective operation timeout"
                                          : "NCCL communicator was aborted",
                             entry.when == Fault::kLate);
      }
      entry = {};
      MutexLock lock(mutex_);
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  const int rank_;
  const std::shared_ptr<FakeCommunicator> communicator_;
  const std::chrono::milliseconds timeout_;
  Mutex mutex_;
  ConditionVariable changed_;
  std::deque<Entry> queue_ LOCKSTEP_GUARDED_BY(mutex_);
  bool stopping_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

BackendFactory FakeNcclWorld::factory() {
  return [self = shared_from_this()](const BackendRequest& request) {
    return c10::make_intrusive<FakeNccl>(self, request);
  };
}

void FakeNcclWorld::set_fault(int rank, Fault fault) {
  MutexLock lock(mutex_);
  faults_[rank] = fault;
}

void FakeNcclWorld::heal() {
  MutexLock lock(mutex_);
  faults_.clear();
  healed_.notify_all();
}

bool FakeNcclWorld::has_fault(int rank, Fault fault) const {
  MutexLock lock(mutex_);
  const auto found = faults_.find(rank);
  return found != faults_.end() && found->second == fault;
}

bool FakeNcclWorld::take_fault(int rank, Fault fault) {
  MutexLock lock(mutex_);
  const auto found = faults_.find(rank);
  if (found == faults_.end() || found->second != fault) return false;
  faults_.erase(found);
  return true;
}

void FakeNcclWorld::add_call(int rank, std::string call) {
  MutexLock lock(mutex_);
  calls_[rank].push_back(std::move(call));
}

std::vector<std::string> FakeNcclWorld::calls(int rank) const {
  MutexLock lock(mutex_);
  const auto found = calls_.find(rank);
  return found == calls_.end() ? std::vector<std::string>{} : found->second;
}

void FakeNcclWorld::clear_calls() {
  MutexLock lock(mutex_);
  calls_.clear();
}

int FakeNcclWorld::num_connected() const {
  MutexLock lock(mutex_);
  return num_connected_;
}

std::shared_ptr<FakeCommunicator> FakeNcclWorld::communicator(const std::string& id, int size) {
  MutexLock lock(mutex_);
  auto& weak = communicators_[id];
  auto communicator = weak.lock();
  if (!communicator) weak = communicator = std::make_shared<FakeCommunicator>(size);
  return communicator;
}

FakeNccl::FakeNccl(std::shared_ptr<FakeNcclWorld> world, const BackendRequest& request)
    : Backend(request.rank, static_cast<int>(request.devices.size())),
      world_(std::move(world)),
      request_(request) {
  require(!world_->has_fault(getRank(), Fault::kMaking), "no such device");
  ++world_->alive_;
}

FakeNccl::~FakeNccl() {
  abort();
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mutex_);
    stream = std::move(stream_);
  }
  stream.reset();
  --world_->alive_;
}

void FakeNccl::eagerConnectSingleDevice(at::Device) {
  const auto deadline = steady_clock::now() + request_.timeout;
  require(!world_->has_fault(getRank(), Fault::kConnecting), "unhandled system error");
  {
    MutexLock lock(world_->mutex_);
    while (world_->faults_.count(getRank()) > 0 && world_->faults_[getRank()] == Fault::kDeaf)
      world_->healed_.wait(world_->mutex_);
  }
  // As NCCL's unique id: rank 0 makes it and the store hands it on.
  std::string id;
  if (getRank() == 0) {
    {
      MutexLock lock(world_->mutex_);
      id = std::to_string(world_->next_id_++);
    }
    request_.store->set("id", id);
  } else {
    id = request_.store->get_to_str("id");
  }
  while (world_->has_fault(getRank(), Fault::kAbsent)) {
    {
      MutexLock lock(mutex_);
      require(!ended_, "aborted while connecting");
    }
    require(steady_clock::now() < deadline, "timed out while connecting");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  auto communicator = world_->communicator(id, getSize());
  {
    MutexLock lock(mutex_);
    require(!ended_, "aborted while connecting");
    communicator_ = communicator;
  }
  require(communicator->connect(getRank(), request_.devices[static_cast<size_t>(getRank())].str(), deadline),
          "not all ranks connected");
  if (getRank() == 0) {
    MutexLock lock(world_->mutex_);
    ++world_->num_connected_;
  }
  MutexLock lock(mutex_);
  stream_ = std::make_shared<Stream>(getRank(), communicator, request_.timeout);
}

c10::intrusive_ptr<c10d::Work> FakeNccl::launch(Call call) {
  call.work = c10::make_intrusive<Work>(getRank(), call.type);
  world_->add_call(getRank(), call.text);
  MutexLock lock(mutex_);
  require(!ended_, "NCCL communicator was aborted");
  require(stream_ != nullptr, "not connected");
  auto work = call.work;
  Fault when = Fault::kNone;
  for (const auto fault : {Fault::kCall, Fault::kLate, Fault::kLater, Fault::kSlow}) {
    if (world_->take_fault(getRank(), fault)) when = fault;
  }
  if (when == Fault::kLater || when == Fault::kSlow) work->leave_host_free();
  const bool fails = when != Fault::kNone && when != Fault::kSlow;
  stream_->push(std::move(call), fails ? "unhandled cuda error\nand its backtrace" : "", when);
  return work;
}

c10::intrusive_ptr<c10d::Work> FakeNccl::allreduce(std::vector<at::Tensor>& tensors,
                                                   const c10d::AllreduceOptions& options) {
  require(tensors.size() == 1, "Expecting one tensor only but got multiple");
  require_dense(tensors[0]);
  const c10d::ReduceOp::RedOpType op = options.reduceOp;
  require(op != c10d::ReduceOp::AVG || tensors[0].is_floating_point(), "a mean of integers is cut off");
  return launch(
      {c10d::OpType::ALLREDUCE, describe_call("all_reduce", tensors[0]), tensors[0], tensors[0], op, 0, {}});
}

c10::intrusive_ptr<c10d::Work> FakeNccl::broadcast(std::vector<at::Tensor>& tensors,
                                                   const c10d::BroadcastOptions& options) {
  require(tensors.size() == 1, "Expecting one tensor only but got multiple");
  require_dense(tensors[0]);
  return launch({c10d::OpType::BROADCAST,
                 describe_call("broadcast", tensors[0]),
                 tensors[0],
                 tensors[0],
                 c10d::ReduceOp::SUM,
                 static_cast<int>(options.rootRank),
                 {}});
}

c10::intrusive_ptr<c10d::Work> FakeNccl::allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                                   std::vector<at::Tensor>& inputs,
                                                   const c10d::AllgatherOptions&) {
  require(inputs.size() == 1 && outputs.size() == 1, "Expecting one tensor only but got multiple");
  require_dense(inputs[0]);
  for (const auto& output : outputs[0]) {
    require(output.sizes() == inputs[0].sizes(), "uneven sizes");
    require_dense(output);
  }
  // The outputs that Lockstep hands over are rows of one tensor; the fake writes to them in one piece.
  const at::Tensor& first = outputs[0][0];
  const at::Tensor rows =
      first.as_strided({getSize(), first.numel()}, {first.numel(), 1}, first.storage_offset());
  for (int rank = 0; rank < getSize(); ++rank) {
    require(rows[rank].const_data_ptr() == outputs[0][static_cast<size_t>(rank)].const_data_ptr(),
            "outputs are no rows of one tensor");
  }
  return launch({c10d::OpType::ALLGATHER,
                 describe_call("all_gather", inputs[0]),
                 inputs[0],
                 rows,
                 c10d::ReduceOp::SUM,
                 0,
                 {}});
}

void FakeNccl::abort() {
  std::shared_ptr<FakeCommunicator> communicator;
  {
    MutexLock lock(mutex_);
    ended_ = true;
    communicator = communicator_;
  }
  if (communicator) communicator->abort(getRank());
}

void FakeNccl::shutdown() {
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(mutex_);
    stream = stream_;
    ended_ = true;
  }
  if (stream) stream->finish();
}

}  // namespace lockstep
