#include "lockstep/strategies/parallel/pipeline_stages.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <set>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/precision/autocast.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/strategies/nn/losses.h"
#include "lockstep/strategies/parallel/internal/pipeline_cut.h"
#include "lockstep/strategies/parallel/internal/pipeline_shapes.h"
#include "lockstep/strategies/parallel/internal/split_backward.h"
#include "lockstep/strategies/parallel/internal/stage_parameters.h"
#include "lockstep/strategies/pipeline/pipeline_check.h"
#include "lockstep/strategies/pipeline/pipeline_runner.h"

namespace lockstep {
namespace {

using Tensors = std::vector<torch::Tensor>;

constexpr const char* kPipeline = "Pipeline";

struct Rows {
  int64_t begin = 0;
  int64_t length = 0;
};

Rows rows_of(int64_t size, int micro_batch, int micro_batches) {
  const int64_t begin = size * micro_batch / micro_batches;
  return {begin, size * (micro_batch + 1) / micro_batches - begin};
}

torch::Tensor rows_in(const torch::Tensor& whole, const Rows& rows) {
  return whole.narrow(0, rows.begin, rows.length);
}

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

/// Mixes numbers into the seed of a random stream (the finalizer of SplitMix64; Steele et al., 2014).
uint64_t mixed(uint64_t seed, uint64_t number) {
  uint64_t bits = seed + 0x9e3779b97f4a7c15 * (number + 1);
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111eb;
  return bits ^ (bits >> 31);
}

/// Returns the moment at which the first rank called it. Ranks on other machines, whose clocks say nothing
/// about it, get the moment at which they heard of that. Blocks until all ranks have called it.
std::chrono::steady_clock::time_point common_start(const ReplicaBackends& ranks) {
  using Clock = std::chrono::steady_clock;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  const auto machine = static_cast<int64_t>(std::hash<std::string>()(boot));
  const torch::Tensor first =
      torch::tensor({static_cast<int64_t>(Clock::now().time_since_epoch().count()), machine}, torch::kLong);
  broadcast_(*ranks.host, 0, {first});
  const auto* values = first.const_data_ptr<int64_t>();
  return values[1] == machine ? Clock::time_point(Clock::duration(values[0])) : Clock::now();
}

/// Calls `work`, whose errors then say what was done. Errors of other ranks stay as they are.
template <typename Fn>
void with_action_in_errors(const char* what, int stage, int micro_batch, const Fn& work) {
  const auto place = [&] { return c10::str(what, " of stage ", stage, " for micro-batch ", micro_batch); };
  try {
    work();
  } catch (c10::DistError&) {
    throw;
  } catch (c10::Error& error) {
    error.add_context("in the " + place());
    throw;
  } catch (const InvalidArgument& error) {
    throw InvalidArgument(c10::str("[Pipeline] in the ", place(), ": ", error.what()));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(c10::str("[Pipeline] in the ", place(), ": ", error.what()));
  }
}

void add_gradient(torch::Tensor& sum, torch::Tensor gradient, bool is_own_memory) {
  if (!gradient.defined()) return;
  if (!sum.defined()) {
    sum = std::move(gradient);
  } else if (is_own_memory && sum.layout() == torch::kStrided && gradient.layout() == torch::kStrided) {
    sum.add_(gradient);
  } else {
    sum = sum + gradient;  // Backward may have passed the memory of the first one on elsewhere.
  }
}

}  // namespace

/// One pass of this rank through a schedule.
class PipelineStages::Work final : public PipelineWork {
 public:
  /// Without a replica, it only goes forward.
  Work(PipelineStages& pipeline, const PipelineSchedule& schedule, const torch::Tensor& input,
       const torch::Tensor& target, const PipelinePass& pass, ReplicaContext* replica,
       const BlockFunctions* functions = nullptr)
      : pipeline_(pipeline),
        schedule_(schedule),
        input_(input),
        target_(target),
        pass_(pass),
        replica_(replica),
        functions_(functions),
        gradients_(pipeline.parameters_->own().size()),
        num_added_(gradients_.size(), 0),
        uses_left_(gradients_.size(), 0),
        backwards_left_(pipeline.stages_.size(), schedule.num_micro_batches) {
    if (pipeline_.num_ranks() > 1) backends_ = pipeline_.backends();
    for (const auto& stage : pipeline_.stages_)
      for (const size_t parameter : stage.parameters) ++uses_left_[parameter];
    for (const auto& shared : pipeline_.parameters_->shared()) {
      const auto& own = pipeline_.parameters_->own();
      const auto found = std::find_if(
          own.begin(), own.end(), [&](const auto& parameter) { return parameter.is_same(shared.parameter); });
      if (found != own.end()) shared_.emplace(static_cast<size_t>(found - own.begin()), &shared);
    }
    if (!goes_backward()) return;
    if (pipeline_.is_training()) draw_seed();
    // That of one micro-batch would not do.
    if (!replica_->global_batch_size()) global_batch_size_ = replica_->sum_on_host(input.size(0));
  }

  void forward(int stage, int micro_batch) override {
    with_action_in_errors("forward", stage, micro_batch, [&] { compute(stage, micro_batch); });
  }

  void backward(int stage, int micro_batch) override {
    with_action_in_errors("backward", stage, micro_batch, [&] {
      Kept& kept = this->kept(stage, micro_batch);
      if (kept.result.requires_grad()) {
        const auto random = own_random();
        auto all = run_backward(kept.result, kept.input, parameters_of(stage), take_gradient(kept));
        kept.of_input = std::move(all.input);
        add(stage, std::move(all.parameters));
      }
      end_inputs(stage, micro_batch, kept);
      end_weights(stage, micro_batch);
    });
  }

  void backward_inputs(int stage, int micro_batch) override {
    with_action_in_errors("backward for the inputs", stage, micro_batch, [&] {
      Kept& kept = this->kept(stage, micro_batch);
      if (kept.result.requires_grad()) {
        const auto random = own_random();
        kept.split.emplace(kept.result, kept.input, parameters_of(stage));
        kept.of_input = kept.split->inputs(take_gradient(kept));
      }
      end_inputs(stage, micro_batch, kept);
    });
  }

  void backward_weights(int stage, int micro_batch) override {
    with_action_in_errors("backward for the weights", stage, micro_batch, [&] {
      Kept& kept = this->kept(stage, micro_batch);
      const auto random = own_random();
      if (kept.split) add(stage, kept.split->weights());
      end_weights(stage, micro_batch);
    });
  }

  void send_activation(int stage, int micro_batch) override {
    Kept& kept = this->kept(stage, micro_batch);
    const torch::Tensor value = std::exchange(kept.sent, {});
    const int to = rank_of(stage + 1);
    const auto key = key_of(stage + 1, micro_batch);
    const ActivationShape shape(value);
    const auto wait = wait_clock();
    if (const auto* known = shapes().find(key)) {
      PipelineShapes::check(*known, shape,
                            c10::str("the result of stage ", stage, " for micro-batch ", micro_batch));
    } else {
      send(*backends_, shape.header(), to);
      shapes().add(key, shape);
    }
    send(*backends_, shape.packed(value), to);
    if (!goes_backward()) kept = {};
  }

  void receive_activation(int stage, int micro_batch) override {
    incoming_[{stage, micro_batch}] = receive_from(rank_of(stage - 1), {false, stage, micro_batch});
  }

  void send_gradient(int stage, int micro_batch) override {
    Kept& kept = this->kept(stage, micro_batch);
    const auto wait = wait_clock();
    const ActivationShape* shape = shapes().find(key_of(stage, micro_batch));
    const torch::Tensor gradient = std::exchange(kept.of_input, {});
    // An input of integers has none, but the schedule has a place for it.
    send(*backends_,
         gradient.defined() ? shape->packed(gradient) : shape->empty_packed(input_.device()).zero_(),
         rank_of(stage - 1));
  }

  void receive_gradient(int stage, int micro_batch) override {
    kept(stage, micro_batch).gradient = receive_from(rank_of(stage + 1), {true, stage, micro_batch});
  }

  /// Hands the gradients on that could not be while the schedule ran.
  void finish() {
    for (auto& [number, shared] : shared_) sum_shared(number, *shared);
    for (size_t i = gradients_.size(); i-- > 0;) hand_on(i);
    for (const auto& parameter : pipeline_.parameters_->others()) {
      // Optimizers then have a state of each parameter on each rank.
      if (parameter.requires_grad()) torch::autograd::backward({parameter}, {torch::zeros_like(parameter)});
    }
  }

  /// Returns the losses or the results of the last stage, of all micro-batches.
  torch::Tensor losses() const { return concatenated(losses_); }
  torch::Tensor outputs() const { return concatenated(outputs_); }

 private:
  /// A stage's forward for a micro-batch, as far as later actions need it.
  struct Kept {
    torch::Tensor input;     ///< a leaf; undefined if backward needs no gradient of it
    torch::Tensor result;    ///< with its history
    torch::Tensor sent;      ///< the result without it, until it is sent
    torch::Tensor gradient;  ///< of the result
    torch::Tensor of_input;  ///< its gradient, until it is sent
    std::optional<SplitBackward> split;
  };
  struct Message {
    bool is_gradient = false;
    int stage = 0;  ///< which receives it
    int micro_batch = 0;
    auto operator<=>(const Message&) const = default;
  };

  bool goes_backward() const { return replica_ != nullptr; }
  int num_stages() const { return schedule_.num_stages(); }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }
  bool is_here(int stage) const {
    return stage >= 0 && stage < num_stages() && rank_of(stage) == pipeline_.position_.index;
  }
  Rows rows(int micro_batch) const {
    return rows_of(input_.size(0), micro_batch, schedule_.num_micro_batches);
  }
  Kept& kept(int stage, int micro_batch) { return kept_[{stage, micro_batch}]; }
  std::optional<WaitClock::Wait> wait_clock() const {
    return std::optional<WaitClock::Wait>(std::in_place, pipeline_.replica_->waits());
  }
  PipelineShapes& shapes() const { return *pipeline_.shapes_; }
  PipelineShapes::Key key_of(int stage, int micro_batch) const {
    auto sizes = input_.sizes().vec();
    sizes.front() = rows(micro_batch).length;
    return {.pipeline = &pipeline_,
            // Other functions than the blocks' may compute other shapes.
            .place = functions_ == nullptr ? stage : -stage,
            .input = std::move(sizes),
            .dtype = input_.scalar_type(),
            .autocast = pass_.autocast};
  }
  /// Draws for recomputation, too.
  std::optional<RankRandom> own_random() const {
    return generator_ ? std::optional<RankRandom>(std::in_place, *generator_) : std::nullopt;
  }

  std::vector<torch::Tensor> parameters_of(int stage) const {
    std::vector<torch::Tensor> parameters;
    for (const size_t number : pipeline_.stages_[static_cast<size_t>(stage)].parameters)
      parameters.push_back(pipeline_.parameters_->own()[number]);
    return parameters;
  }

  /// Replicas draw other seeds, and the ranks of one the same.
  void draw_seed() {
    const auto options = torch::dtype(torch::kLong).device(replica_->device());
    seed_ = static_cast<uint64_t>(
        torch::randint(std::numeric_limits<int64_t>::max(), {1}, replica_->generator(), options)
            .item<int64_t>());
    generator_ = replica_->generator().clone();
  }

  void compute(int stage, int micro_batch) {
    Kept& kept = this->kept(stage, micro_batch);
    torch::Tensor x =
        stage == 0 ? rows_in(input_, rows(micro_batch)) : std::exchange(incoming_[{stage, micro_batch}], {});
    if (goes_backward() && stage > 0 && x.is_floating_point()) {
      x = x.detach().requires_grad_();
      kept.input = x;
    }
    const Stage& own = pipeline_.stages_[static_cast<size_t>(stage)];
    const bool is_last = stage + 1 == num_stages();
    {
      std::optional<AutocastGuard> cast;
      if (goes_backward()) cast.emplace(input_.device().type(), pass_.autocast);
      for (size_t block = own.begin; block < own.end; ++block) {
        if (generator_)
          generator_->set_current_seed(mixed(mixed(seed_, block), static_cast<uint64_t>(micro_batch)));
        const auto random = own_random();
        x = functions_ != nullptr ? (*functions_)[block](x) : pipeline_.blocks_[block].forward(x);
      }
      if (is_last) {
        if (pass_.returns_outputs) outputs_.push_back(x.detach());
        if (pass_.losses) {
          x = pass_.losses(x, target_.defined() ? rows_in(target_, rows(micro_batch)) : torch::Tensor());
          losses_.push_back(x.detach());
        }
      }
    }
    if (is_last && goes_backward()) {
      const auto loss = compute_average_loss(*replica_, x, {.global_batch_size = global_batch_size_});
      kept.result = pass_.scaler != nullptr ? pass_.scaler->scale(loss) : loss;
    }
    if (is_last) return;
    (is_here(stage + 1) ? incoming_[{stage + 1, micro_batch}] : kept.sent) = x.detach();
    if (goes_backward()) kept.result = x;
  }

  torch::Tensor take_gradient(Kept& kept) {
    return kept.gradient.defined() ? std::exchange(kept.gradient, {}) : torch::ones_like(kept.result);
  }

  void end_inputs(int stage, int micro_batch, Kept& kept) {
    const bool has_input = kept.input.defined();
    if (has_input && !kept.of_input.defined()) kept.of_input = torch::zeros_like(kept.input);
    kept.result.reset();
    kept.input.reset();
    if (is_here(stage - 1) && has_input)
      this->kept(stage - 1, micro_batch).gradient = std::exchange(kept.of_input, {});
  }

  void add(int stage, std::vector<torch::Tensor> gradients) {
    const auto& numbers = pipeline_.stages_[static_cast<size_t>(stage)].parameters;
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (!gradients[i].defined()) continue;
      add_gradient(gradients_[numbers[i]], std::move(gradients[i]), num_added_[numbers[i]] > 1);
      ++num_added_[numbers[i]];
    }
  }

  void end_weights(int stage, int micro_batch) {
    kept(stage, micro_batch).split.reset();
    if (--backwards_left_[static_cast<size_t>(stage)] > 0) return;
    const auto& numbers = pipeline_.stages_[static_cast<size_t>(stage)].parameters;
    for (size_t i = numbers.size(); i-- > 0;) {
      if (--uses_left_[numbers[i]] == 0 && !shared_.contains(numbers[i])) hand_on(numbers[i]);
    }
  }

  /// Passes a gradient to the parameter as a backward would, so that sums over the replicas begin.
  void hand_on(size_t number) {
    if (torch::Tensor gradient = std::exchange(gradients_[number], {}); gradient.defined())
      torch::autograd::backward({pipeline_.parameters_->own()[number]}, {std::move(gradient)});
  }

  /// Adds up the gradients of a parameter that several stages use, in the order of these on all ranks.
  void sum_shared(size_t number, const StageParameters::Shared& shared) {
    const torch::Tensor& parameter = pipeline_.parameters_->own()[number];
    if (!parameter.requires_grad()) return;
    const torch::NoGradGuard no_grad;
    torch::Tensor own = std::exchange(gradients_[number], {});
    own = own.defined() ? own.contiguous() : torch::zeros_like(parameter, at::MemoryFormat::Contiguous);
    const auto wait = wait_clock();
    for (const int rank : shared.ranks) {
      if (rank != pipeline_.position_.index) send(*backends_, own, rank);
    }
    torch::Tensor sum;
    for (const int rank : shared.ranks) {
      torch::Tensor term = own;
      if (rank != pipeline_.position_.index) {
        term = torch::empty_like(own);
        receive_(*backends_, term, rank);
      }
      sum = sum.defined() ? sum + term : term;
    }
    gradients_[number] = sum;
  }

  /// Messages from a rank come in the order in which it sends them, which need not be that in which this rank
  /// uses them.
  torch::Tensor receive_from(int source, const Message& wanted) {
    if (const auto early = early_.find(wanted); early != early_.end()) {
      auto value = std::move(early->second);
      early_.erase(early);
      return value;
    }
    const auto wait = wait_clock();
    while (true) {
      const Message next = next_from(source);
      torch::Tensor value = receive_message(source, next);
      if (next == wanted) return value;
      early_.emplace(next, std::move(value));
    }
  }

  torch::Tensor receive_message(int source, const Message& message) {
    const torch::NoGradGuard no_grad;
    const int place = message.is_gradient ? message.stage + 1 : message.stage;
    const auto key = key_of(place, message.micro_batch);
    const ActivationShape* shape = shapes().find(key);
    if (shape == nullptr) {
      const torch::Tensor header = ActivationShape::empty_header();
      receive_(*backends_, header, source);
      shape = &shapes().add(key, ActivationShape::of_header(header));
    }
    const torch::Tensor packed = shape->empty_packed(input_.device());
    receive_(*backends_, packed, source);
    return shape->unpacked(packed);
  }

  /// Returns the next message that a rank sends to this one.
  Message next_from(int source) {
    const auto& actions = schedule_.actions[static_cast<size_t>(source)];
    size_t& next = next_sent_[source];
    for (; next < actions.size(); ++next) {
      const auto& [op, stage, micro_batch] = actions[next];
      const bool is_activation = op == PipelineOp::kSendActivation && is_here(stage + 1);
      const bool is_gradient = op == PipelineOp::kSendGradient && is_here(stage - 1);
      if (!is_activation && !is_gradient) continue;
      ++next;
      return {is_gradient, is_gradient ? stage - 1 : stage + 1, micro_batch};
    }
    throw std::logic_error("[Pipeline] a rank waits for a message that nobody sends");  // the check's task
  }

  static torch::Tensor concatenated(const Tensors& parts) {
    return parts.empty() ? torch::Tensor() : parts.size() == 1 ? parts.front() : torch::cat(parts);
  }

  PipelineStages& pipeline_;
  const PipelineSchedule& schedule_;
  const torch::Tensor& input_;
  const torch::Tensor& target_;
  const PipelinePass& pass_;
  ReplicaContext* const replica_;          // null: forward only
  const BlockFunctions* const functions_;  // in place of the blocks'; null: none
  std::optional<ReplicaBackends> backends_;
  std::optional<int64_t> global_batch_size_;  // if the run's arguments do not tell
  uint64_t seed_ = 0;
  std::optional<at::Generator> generator_;
  std::map<std::pair<int, int>, Kept> kept_;               // by stage and micro-batch
  std::map<std::pair<int, int>, torch::Tensor> incoming_;  // the same
  std::map<int, size_t> next_sent_;                        // for each rank, its next action
  std::map<Message, torch::Tensor> early_;
  Tensors losses_;                                           // of the micro-batches
  Tensors outputs_;                                          // the same
  std::map<size_t, const StageParameters::Shared*> shared_;  // by the numbers of this rank's parameters
  // For each of this rank's parameters:
  Tensors gradients_;
  std::vector<int> num_added_;
  std::vector<int> uses_left_;       // by stages of this rank
  std::vector<int> backwards_left_;  // for each stage
};

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
  const auto num_stages = static_cast<size_t>(schedule_.num_stages());
  if (!options_.costs.empty() && options_.costs.size() != blocks_.size()) {
    throw InvalidArgument(c10::str("[Pipeline] expected a cost of each of ", blocks_.size(),
                                   " blocks, but got ", options_.costs.size()));
  }
  if (!options_.cuts.empty()) {
    firsts_ = stages_cut_at(options_.cuts, blocks_.size(), num_stages);
  } else {
    auto costs = options_.costs;
    for (size_t i = costs.size(); i < blocks_.size(); ++i)
      costs.push_back(StageParameters::bytes_of_block(blocks_[i]));
    firsts_ = cut_into_stages(costs, num_stages);
  }
  std::vector<int> ranks;
  for (size_t block = 0; block < blocks_.size(); ++block) ranks.push_back(rank_of_block(block));
  parameters_ =
      std::make_unique<StageParameters>(blocks_, ranks, position_.index, num_ranks(), position_.name);
  shapes_ = std::make_shared<PipelineShapes>();  // until it is bound
  const auto& own = parameters_->own();
  for (size_t stage = 0; stage < num_stages; ++stage) {
    Stage made{firsts_[stage], stage + 1 < num_stages ? firsts_[stage + 1] : blocks_.size(), {}};
    std::set<size_t> numbers;
    for (size_t block = made.begin; block < made.end; ++block) {
      for (const auto& parameter : StageParameters::of_block(blocks_[block])) {
        const auto found =
            std::find_if(own.begin(), own.end(), [&](const auto& other) { return other.is_same(parameter); });
        if (found != own.end()) numbers.insert(static_cast<size_t>(found - own.begin()));
      }
    }
    if (schedule_.rank_of_stage[stage] == position_.index)
      made.parameters.assign(numbers.begin(), numbers.end());
    stages_.push_back(std::move(made));
  }
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
  replica_ = std::move(replica);
}

void PipelineStages::moved() {
  parameters_->mark();
}

int PipelineStages::rank_of_block(size_t block) const {
  const auto next = std::upper_bound(firsts_.begin(), firsts_.end(), block);
  return schedule_.rank_of_stage[static_cast<size_t>(next - firsts_.begin()) - 1];
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

/// Copies the buffers of each rank's blocks, such as running statistics, to the others.
void PipelineStages::share_buffers() const {
  if (num_ranks() == 1) return;
  const torch::NoGradGuard no_grad;
  std::vector<Tensors> of_ranks(static_cast<size_t>(num_ranks()));
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
  Work work(*this, schedule_, input, target, pass, &replica);
  auto start = std::chrono::steady_clock::now();
  if (records_times_ && num_ranks() > 1) {
    replica.axis(position_.name).sum_on_host(0);
    start = common_start(backends());
  }
  auto times = run_pipeline_rank(schedule_, position_.index, work, start);
  if (records_times_) times_ = std::move(times);
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
  Work work(*this, schedule, input, target, pass, nullptr, functions);
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

int PipelineStages::forward_micro_batches(int64_t examples) const {
  // Statistics of layers that train are then those of all examples, as in a forward on one device.
  if (is_training()) return 1;
  // Replicas with different numbers of examples compute such blocks together, and so equally often.
  if (parameters_->has_slices()) return options_.micro_batches;
  return static_cast<int>(std::clamp<int64_t>(examples, 1, options_.micro_batches));
}

torch::Tensor PipelineStages::forward(const torch::Tensor& input) {
  return forward(input, {}, {});
}

torch::Tensor PipelineStages::forward(
    const torch::Tensor& input, const torch::Tensor& target,
    const std::function<torch::Tensor(const torch::Tensor&, const torch::Tensor&)>& finish) {
  if (input.dim() == 0) throw InvalidArgument("[Pipeline] expected an input with examples, but got a scalar");
  return run_forward(forward_schedule_of(forward_micro_batches(input.size(0))), input, target,
                     {.losses = finish, .returns_outputs = !finish});
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
