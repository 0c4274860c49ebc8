#include "lockstep/tests/support/fake_nccl.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

#include "lockstep/tests/support/fake_nccl_stream.h"

namespace lockstep {

using std::chrono::steady_clock;
using Fault = FakeNcclWorld::Fault;

namespace {

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
    : Backend(request.rank, request.size), world_(std::move(world)), request_(request) {
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
  // Like NCCL's unique id: rank 0 makes it and the store hands it on.
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
  require(communicator->connect(getRank(), request_.device.str(), deadline), "not all ranks connected");
  if (getRank() == 0) {
    MutexLock lock(world_->mutex_);
    ++world_->num_connected_;
  }
  MutexLock lock(mutex_);
  stream_ = std::make_shared<Stream>(getRank(), communicator, request_.timeout);
}

c10::intrusive_ptr<c10d::Work> FakeNccl::launch(Call call) {
  call.work = c10::make_intrusive<Work>(getRank(), call.type);
  if (const auto device = call.input.device(); !device.is_cpu()) {
    call.launched = std::make_shared<c10::Event>(device.type());
    call.launched->record(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
  }
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

c10::intrusive_ptr<c10d::Work> FakeNccl::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                         const c10d::AllgatherOptions&) {
  require_dense(input);
  require_dense(output);
  require(output.numel() == getSize() * input.numel(), "uneven sizes");
  return launch({c10d::OpType::ALLGATHER,
                 describe_call("all_gather", input),
                 input,
                 output.view({getSize(), input.numel()}),
                 c10d::ReduceOp::SUM,
                 0,
                 {}});
}

c10::intrusive_ptr<c10d::Work> FakeNccl::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                              const c10d::ReduceScatterOptions& options) {
  require(!world_->lacks_reduce_scatter, "Backend fake_nccl does not support _reduce_scatter_base");
  require_dense(input);
  require_dense(output);
  require(input.numel() == getSize() * output.numel(), "uneven sizes");
  const c10d::ReduceOp::RedOpType op = options.reduceOp;
  require(op != c10d::ReduceOp::AVG || input.is_floating_point(), "a mean of integers is cut off");
  Call call{
      c10d::OpType::_REDUCE_SCATTER_BASE, describe_call("reduce_scatter", input), input, output, op, 0, {}};
  call.rank = static_cast<size_t>(getRank());
  return launch(std::move(call));
}

c10::intrusive_ptr<c10d::Work> FakeNccl::alltoall(std::vector<at::Tensor>& outputs,
                                                  std::vector<at::Tensor>& inputs,
                                                  const c10d::AllToAllOptions&) {
  for (const auto& tensors : {inputs, outputs}) {
    require(static_cast<int>(tensors.size()) == getSize(), "one tensor for each rank");
    for (const auto& tensor : tensors) {
      require(tensor.is_contiguous(), "Tensors must be contiguous");
      require(!tensor.is_complex(), "Unconvertible NCCL type");
    }
  }
  const at::Tensor none = at::empty({0}, inputs[0].options());
  Call call{
      c10d::OpType::ALLTOALL, describe_call("all_to_all", inputs[0]), none, none, c10d::ReduceOp::SUM, 0, {}};
  call.inputs = inputs;
  call.outputs = outputs;
  call.rank = static_cast<size_t>(getRank());
  return launch(std::move(call));
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
