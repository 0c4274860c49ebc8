#include "lockstep/strategies/parallel/pipeline_stages.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <functional>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/devices/internal/spare_cores.h"
#include "lockstep/runtime/devices/intra_op_threads.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/strategies/parallel/internal/pass_batches.h"
#include "lockstep/strategies/parallel/internal/pipeline_shapes.h"
#include "lockstep/strategies/parallel/internal/stage_parameters.h"
#include "lockstep/strategies/parallel/internal/stage_work.h"
#include "lockstep/strategies/pipeline/internal/pipeline_cut.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_cores.h"
#include "lockstep/strategies/pipeline/pipeline_runner.h"

namespace lockstep {
namespace {

constexpr const char* kPipeline = "Pipeline";

PipelineSchedule schedule_of(const PipelineOptions& options, int ranks) {
  if (options.micro_batches < 1) {
    throw InvalidArgument(
        c10::str("[Pipeline] expected at least 1 micro-batch, but got ", options.micro_batches));
  }
  auto schedule =
      options.make_schedule
          ? options.make_schedule(ranks, options.micro_batches)
          : make_pipeline_schedule(options.schedule, ranks, options.micro_batches, options.stages_per_rank);
  if (schedule.num_ranks() != ranks || schedule.num_micro_batches != options.micro_batches) {
    throw InvalidArgument(c10::str("[Pipeline] expected a schedule of ", ranks, " ranks and ",
                                   options.micro_batches, " micro-batches, but got one of ",
                                   schedule.num_ranks(), " and ", schedule.num_micro_batches));
  }
  check_pipeline_schedule(schedule);
  return schedule;
}

bool goes_backward(const PipelineSchedule& schedule) {
  const auto is_backward = [](const PipelineAction& action) {
    return action.op == PipelineOp::kBackward || action.op == PipelineOp::kBackwardInputs;
  };
  return std::any_of(schedule.actions.begin(), schedule.actions.end(), [&](const auto& of_rank) {
    return std::any_of(of_rank.begin(), of_rank.end(), is_backward);
  });
}

/// Returns the first block of each stage. `bytes_of` returns the cost of a block if the options have none.
std::vector<size_t> firsts_of_stages(const PipelineOptions& options, size_t num_blocks, size_t num_stages,
                                     const std::function<double(size_t)>& bytes_of) {
  if (!options.costs.empty() && options.costs.size() != num_blocks) {
    throw InvalidArgument(c10::str("[Pipeline] expected a cost of each of ", num_blocks, " blocks, but got ",
                                   options.costs.size()));
  }
  if (!options.cuts.empty()) return stages_cut_at(options.cuts, num_blocks, num_stages);
  auto costs = options.costs;
  for (size_t i = costs.size(); i < num_blocks; ++i) costs.push_back(bytes_of(i));
  return cut_into_stages(costs, num_stages);
}

int rank_of_block(size_t block, const std::vector<size_t>& firsts, const std::vector<int>& rank_of_stage) {
  const auto next = std::upper_bound(firsts.begin(), firsts.end(), block);
  return rank_of_stage[static_cast<size_t>(next - firsts.begin()) - 1];
}

/// Returns a number that is the same for all processes of this machine, and for those of no other.
int64_t number_of_machine() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return static_cast<int64_t>(std::hash<std::string>()(boot));
}

/// Returns the moment at which the first rank called it. Ranks on other machines, whose clocks say nothing
/// about it, get the moment at which they heard of that. Blocks until all ranks have called it.
std::chrono::steady_clock::time_point common_start(const ReplicaBackends& ranks) {
  using Clock = std::chrono::steady_clock;
  const int64_t machine = number_of_machine();
  const torch::Tensor first =
      torch::tensor({static_cast<int64_t>(Clock::now().time_since_epoch().count()), machine}, torch::kLong);
  broadcast_(*ranks.host, 0, {first});
  const auto* values = first.const_data_ptr<int64_t>();
  return values[1] == machine ? Clock::time_point(Clock::duration(values[0])) : Clock::now();
}

}  // namespace

std::vector<bool> blocks_of_rank(const ReplicaAxis& axis, const PipelineOptions& options, size_t num_blocks) {
  if (options.costs.empty() && options.cuts.empty())
    throw InvalidArgument("[Pipeline] expected costs or cuts of blocks that are not there yet, but got none");
  const auto schedule = schedule_of(options, axis.size());
  const auto firsts = firsts_of_stages(options, num_blocks, static_cast<size_t>(schedule.num_stages()),
                                       [](size_t) { return 0; });
  std::vector<bool> are_own;
  for (size_t block = 0; block < num_blocks; ++block)
    are_own.push_back(lockstep::rank_of_block(block, firsts, schedule.rank_of_stage) == axis.index());
  return are_own;
}

PipelineStages::PipelineStages(const ReplicaAxis& axis, std::vector<PipelineBlock> blocks,
                               PipelineOptions options)
    : position_{.name = axis.name(), .index = axis.index(), .size = axis.size(), .role = axis.role()},
      blocks_(std::move(blocks)),
      options_(std::move(options)) {
  if (position_.size > 1 && position_.role != AxisRole::kModel) {
    throw InvalidArgument(
        c10::str("[Pipeline] expected an axis along which models are cut, such as pipeline, "
                 "but got ",
                 position_.name, ", along which ",
                 position_.role == AxisRole::kData ? "the batch is" : "sequences are", " cut"));
  }
  schedule_ = schedule_of(options_, num_ranks());
  if (!goes_backward(schedule_))
    throw InvalidArgument("[Pipeline] expected a schedule that goes backward, but got " + schedule_.name);
  const auto parameters = parameters_of_blocks(blocks_);
  firsts_ = firsts_of_stages(options_, blocks_.size(), static_cast<size_t>(schedule_.num_stages()),
                             [&](size_t block) { return bytes_of_block(parameters[block]); });
  parameters_ = std::make_unique<StageParameters>(blocks_, parameters,
                                                  StagePlaces{.firsts = firsts_,
                                                              .rank_of_stage = schedule_.rank_of_stage,
                                                              .rank = position_.index,
                                                              .num_ranks = num_ranks(),
                                                              .axis = position_.name});
  shapes_ = std::make_shared<PipelineShapes>();  // until it is bound
}

PipelineStages::~PipelineStages() = default;

void PipelineStages::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  const auto& own = replica->position(kPipeline, position_.name);
  if (own.index != position_.index || own.size != position_.size) {
    throw InvalidArgument(c10::str("[Pipeline] expected to be bound to rank ", position_.index, " of ",
                                   position_.size, " along the axis ", position_.name, ", but got rank ",
                                   own.index, " of ", own.size));
  }
  shapes_ = replica->shared<PipelineShapes>();
  threads_.reset();
  replica_ = std::move(replica);
}

void PipelineStages::moved() {
  parameters_->mark();
}

size_t PipelineStages::begin_of_stage(int stage) const {
  return stage < schedule_.num_stages() ? firsts_[static_cast<size_t>(stage)] : blocks_.size();
}

int PipelineStages::rank_of_block(size_t block) const {
  return lockstep::rank_of_block(block, firsts_, schedule_.rank_of_stage);
}

bool PipelineStages::is_training() const {
  // Layers whose statistics are measured train inside of modules that do not.
  for (const auto& block : blocks_) {
    for (const auto& root : block.modules) {
      const auto modules = root->modules();
      if (std::any_of(modules.begin(), modules.end(),
                      [](const auto& module) { return module->is_training(); }))
        return true;
    }
  }
  return false;
}

ReplicaBackends PipelineStages::backends() const {
  if (replica_ == nullptr)
    throw InvalidArgument("[Pipeline] expected a call in a run of the strategy whose scope made the model");
  return replica_->backends(kPipeline, position_.name);
}

const PipelineSchedule& PipelineStages::forward_schedule_of(int micro_batches) {
  auto& schedule = forward_schedules_[micro_batches];
  if (schedule.actions.empty()) schedule = forward_schedule(schedule_.rank_of_stage, micro_batches);
  return schedule;
}

/// Returns the value that the rank of the last stage has.
torch::Tensor PipelineStages::from_last_stage(const torch::Tensor& own, torch::Device device) const {
  if (num_ranks() == 1) return own;
  const torch::NoGradGuard no_grad;
  const auto along = backends();
  const WaitClock::Wait wait(replica_->waits());
  const int last = schedule_.rank_of_stage.back();
  const bool is_last = position_.index == last;
  // The caller's functions decide the shape: they may be others in each call.
  const torch::Tensor header = is_last ? ActivationShape(own).header() : ActivationShape::empty_header();
  broadcast_(*along.host, last, {header});
  const auto shape = ActivationShape::of_header(header);
  const torch::Tensor value = is_last ? shape.packed(own) : shape.empty_packed(device);
  broadcast_(*along.device, last, {value});
  return shape.unpacked(value);
}

/// Blocks until all ranks of the axis have called it, the first time.
const std::vector<int>& PipelineStages::threads_of_actions() {
  if (threads_) return *threads_;
  const torch::NoGradGuard no_grad;
  const auto along = backends();
  const WaitClock::Wait wait(replica_->waits());
  const torch::Tensor own = torch::tensor({number_of_machine()}, torch::kLong);
  const torch::Tensor machines = torch::empty({num_ranks()}, torch::kLong);
  all_gather_(*along.host, machines, own);
  std::vector<bool> is_near;
  for (int64_t rank = 0; rank < num_ranks(); ++rank)
    is_near.push_back(machines[rank].item<int64_t>() == own.item<int64_t>());
  std::vector<int> threads;
  const double cores = cores_of_this_replica();
  if (cores > 0) {
    // Backward takes about twice as long as forward. Times that were measured would differ between starts.
    const auto planned = simulate_pipeline(schedule_, uniform_pipeline_times(schedule_, 1, 2));
    for (const double part : waiting_ranks(planned, position_.index, is_near))
      threads.push_back(at::get_num_threads() + static_cast<int>(part * cores));
  }
  threads_ = std::move(threads);
  return *threads_;
}

/// Copies the buffers of each rank's blocks, such as running statistics, to the others.
void PipelineStages::share_buffers() const {
  if (num_ranks() == 1) return;
  const torch::NoGradGuard no_grad;
  std::vector<std::vector<torch::Tensor>> of_ranks(static_cast<size_t>(num_ranks()));
  for (size_t block = 0; block < blocks_.size(); ++block) {
    auto& buffers = of_ranks[static_cast<size_t>(rank_of_block(block))];
    for (const auto& module : blocks_[block].modules) {
      for (const auto& buffer : module->buffers()) buffers.push_back(buffer);
    }
  }
  const auto along = backends();
  const WaitClock::Wait wait(replica_->waits());
  for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
    if (!of_ranks[rank].empty()) broadcast_(*along.device, static_cast<int>(rank), of_ranks[rank]);
  }
}

PipelineResult PipelineStages::forward_backward(ReplicaContext& replica, const torch::Tensor& input,
                                                const torch::Tensor& target, const PipelinePass& pass) {
  if (!at::GradMode::is_enabled())
    throw InvalidArgument("[Pipeline] expected gradients to be enabled in forward_backward()");
  if (input.dim() == 0 || target.dim() == 0 || input.size(0) != target.size(0)) {
    throw InvalidArgument(c10::str("[Pipeline] expected an input and a target of as many examples, but got ",
                                   input.sizes(), " and ", target.sizes()));
  }
  // A model that belongs to no replica is refused next.
  if (num_ranks() > 1 && replica_ != nullptr)
    replica_->refuse_capture(kPipeline, "the messages of a pipeline");
  const auto* const threads = num_ranks() > 1 && input.is_cpu() ? &threads_of_actions() : nullptr;
  const PassBatches batches({input}, {schedule_.num_micro_batches}, target);
  Work work(*this, schedule_, batches, pass, &replica);
  auto start = std::chrono::steady_clock::now();
  if (records_times_ && num_ranks() > 1) {
    replica.axis(position_.name).sum_on_host(0);
    start = common_start(backends());
  }
  {
    const IntraOpThreadsGuard keep;
    auto times = run_pipeline_rank(schedule_, position_.index, work, start, [threads](size_t action) {
      if (threads != nullptr && !threads->empty()) at::set_num_threads((*threads)[action]);
    });
    if (records_times_) times_ = std::move(times);
  }
  work.finish();
  if (is_training()) share_buffers();
  PipelineResult result{.losses = from_last_stage(work.losses(), input.device()), .outputs = {}};
  if (pass.returns_outputs) result.outputs = from_last_stage(work.outputs(), input.device());
  return result;
}

torch::Tensor PipelineStages::run_forward(const PipelineSchedule& schedule, const torch::Tensor& input,
                                          const torch::Tensor& target, const PipelinePass& pass,
                                          const BlockFunctions* functions) {
  const torch::NoGradGuard no_grad;
  const bool is_training = this->is_training();
  const PassBatches batches({input}, {schedule.num_micro_batches}, target);
  Work work(*this, schedule, batches, pass, nullptr, functions);
  const auto run = [&] {
    run_pipeline_rank(schedule, position_.index, work, std::chrono::steady_clock::now());
  };
  if (is_training && num_ranks() > 1) {
    // Ranks compute different blocks, and the replica's random state must stay the same on all of them.
    const auto random = replica_->rank_random(kPipeline);
    run();
  } else {
    run();
  }
  if (is_training) share_buffers();
  return from_last_stage(pass.losses ? work.losses() : work.outputs(), input.device());
}

/// Returns the number of micro-batches in which stages go forward alone.
int PipelineStages::micro_batches_of(const torch::Tensor& input) const {
  if (input.dim() == 0) throw InvalidArgument("[Pipeline] expected an input with examples, but got a scalar");
  // Statistics of layers that train are then those of all examples, as in a forward on one device.
  if (is_training()) return 1;
  // Replicas with different numbers of examples compute such blocks together, and so equally often.
  if (parameters_->has_slices()) return options_.micro_batches;
  return static_cast<int>(std::clamp<int64_t>(input.size(0), 1, options_.micro_batches));
}

torch::Tensor PipelineStages::forward(const torch::Tensor& input) {
  return forward(input, {}, {});
}

torch::Tensor PipelineStages::forward(
    const torch::Tensor& input, const torch::Tensor& target,
    const std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>& finish) {
  return run_forward(forward_schedule_of(micro_batches_of(input)), input, target,
                     {.losses = finish, .returns_outputs = !finish});
}

void PipelineStages::stream(const PipelineInputs& inputs,
                            const std::function<void(size_t batch, const torch::Tensor& result)>& take) {
  if (inputs.batches.empty()) return;
  const torch::NoGradGuard no_grad;
  std::vector<int> counts;
  for (const auto& input : inputs.batches) counts.push_back(micro_batches_of(input));
  if (is_training()) {
    // A batch's statistics reach the other ranks before the next one.
    for (size_t batch = 0; batch < counts.size(); ++batch) take(batch, forward(inputs.batches[batch]));
    return;
  }
  if (streamed_ != counts) {
    stream_ = plan_pipeline_stream(schedule_.rank_of_stage, counts);
    streamed_ = counts;
  }
  const PassBatches batches(inputs.batches, counts, {}, inputs.first_number);
  const PipelinePass pass;
  Work work(*this, stream_.schedule, batches, pass, nullptr);
  run_pipeline_stream_rank(stream_, position_.index, work,
                           [&](size_t batch) { take(batch, work.take_result(batch)); });
}

torch::Tensor PipelineStages::forward_by(const BlockFunctions& functions, const torch::Tensor& input) {
  return run_forward(forward_schedule_of(1), input, {}, {}, &functions);
}

PipelineTimeline PipelineStages::gather_times() {
  PipelineTimeline timeline;
  for (int rank = 0; rank < num_ranks(); ++rank) {
    const auto& actions = schedule_.actions[static_cast<size_t>(rank)];
    const auto count = static_cast<int64_t>(actions.size());
    const torch::Tensor seconds = torch::zeros({count, 2}, torch::kDouble);
    for (size_t i = 0; rank == position_.index && i < times_.size(); ++i) {
      seconds[static_cast<int64_t>(i)][0] = times_[i].begin;
      seconds[static_cast<int64_t>(i)][1] = times_[i].end;
    }
    if (num_ranks() > 1) {
      const WaitClock::Wait wait(replica_->waits());
      broadcast_(*backends().host, rank, {seconds});
    }
    auto& of_rank = timeline.ranks.emplace_back();
    for (size_t i = 0; i < actions.size(); ++i) {
      const auto* own = seconds.const_data_ptr<double>() + 2 * i;
      of_rank.push_back({actions[i], own[0], own[1]});
    }
  }
  return timeline;
}

}  // namespace lockstep
