#include "lockstep/strategies/parallel/check_parallelized.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/module_state.h"
#include "lockstep/runtime/replicas/rank_random.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/strategies/parallel/internal/parallelized_layers.h"

namespace lockstep::detail {
namespace {

/// A call of a layer of the whole module.
struct LayerCall {
  std::string name;
  torch::Tensor input;
  torch::Tensor output;
};

using Problem = std::optional<std::string>;

/// Returns a rank's part of the features of a whole tensor.
torch::Tensor part_of_features(const torch::Tensor& whole, const ShardedParameter& cut) {
  std::vector<torch::Tensor> parts;
  for (const auto& range : ranges_of_cut(cut)) parts.push_back(whole.narrow(-1, range.offset, range.length));
  return at::cat(parts, -1);
}

/// `least_largest` is the least value that counts as the largest.
Problem difference(const std::string& what, const torch::Tensor& expected, const torch::Tensor& actual,
                   double tolerance, double least_largest = 0) {
  if (expected.sizes() != actual.sizes())
    return c10::str(what, " has the sizes ", actual.sizes(), " and not ", expected.sizes());
  if (expected.numel() == 0) return std::nullopt;
  const auto a = expected.detach().to(torch::kDouble);
  const double largest = a.abs().max().item<double>();
  const double most = (actual.detach().to(torch::kDouble) - a).abs().max().item<double>();
  if (most <= tolerance * std::max(largest, least_largest)) return std::nullopt;  // not if it is NaN
  return c10::str(what, " differs by ", most, ", and its largest value is ", largest);
}

/// Compares the calls of the parallelized module's layers with those of the whole module's.
class CallComparison {
 public:
  CallComparison(std::vector<LayerCall> calls, double tolerance)
      : calls_(std::move(calls)), tolerance_(tolerance) {}

  void observe(const ParallelizedLayer& layer, const torch::Tensor& input, const torch::Tensor& output) {
    const torch::NoGradGuard no_grad;
    if (problem_) return;
    if (next_ == calls_.size() || calls_[next_].name != layer.name()) {
      problem_ = "the layer '" + layer.name() + "' is called where the whole module calls " +
                 (next_ == calls_.size() ? "none" : "'" + calls_[next_].name + "'");
      return;
    }
    const LayerCall& call = calls_[next_++];
    const bool is_table = !input.is_floating_point();
    const bool takes_part = layer.cut && !is_table && *layer.cut->dim == 1 && layer.linear.input_is_parallel;
    const bool returns_part = is_table ? layer.returns_part_of_embedding() : layer.returns_part_of_linear();
    problem_ =
        difference("the input of '" + layer.name() + "'",
                   takes_part ? part_of_features(call.input, *layer.cut) : call.input, input, tolerance_);
    if (problem_) {
      *problem_ +=
          ". Between " + (previous_.empty() ? "the module's input" : "'" + previous_ + "'") +
          " and it, the module needs whole features, but has parts of them: add the layers before '" +
          layer.name() + "' that the plan misses, or gather_output";
      return;
    }
    problem_ = difference("the output of '" + layer.name() + "'",
                          returns_part ? part_of_features(call.output, *layer.cut) : call.output, output,
                          tolerance_);
    previous_ = layer.name();
  }
  /// Compares what the modules return.
  void end(const torch::Tensor& expected, const torch::Tensor& result) {
    if (!problem_ && next_ < calls_.size())
      problem_ = "the layer '" + calls_[next_].name + "' is not called, but the whole module calls it";
    if (problem_) return;
    problem_ = difference("the module's result", expected, result, tolerance_);
    if (problem_ && !previous_.empty())
      *problem_ +=
          ". After '" + previous_ + "', the module has parts of features: gather_output makes them whole";
  }
  const Problem& problem() const { return problem_; }

 private:
  std::vector<LayerCall> calls_;
  double tolerance_;
  size_t next_ = 0;
  std::string previous_;
  Problem problem_;
};

/// Calls a forward, and `observe` after each layer.
template <typename Observe>
torch::Tensor observed(torch::nn::Module& module, ReplicaContext& replica,
                       const ParallelizedPair::Forward& forward, const Observe& observe) {
  LayerTrace* trace = nullptr;
  for (const auto& child : module.children()) {
    if (const auto* layers = dynamic_cast<ParallelizedLayers*>(child.get())) trace = layers->trace().get();
  }
  struct Reset {
    LayerTrace* trace;
    ~Reset() { trace->observe = nullptr; }
  } const reset{trace};
  trace->observe = observe;
  try {
    return forward(replica);
  } catch (const c10::Error& error) {
    throw InvalidArgument(c10::str("[check_parallelized] forward fails after ",
                                   trace->last.empty() ? "the module's input" : "'" + trace->last + "'", ": ",
                                   error.what_without_backtrace()));
  }
}

/// Runs backward with a gradient that differs between elements.
void backward_of_waves(const torch::Tensor& result) {
  const auto wave = torch::sin(torch::arange(1, result.numel() + 1, result.options().requires_grad(false)));
  result.backward(wave.reshape(result.sizes()));
}

Problem gradients_differ(const torch::nn::Module& whole, const torch::nn::Module& parallelized,
                         double tolerance) {
  const auto parameters = parallelized.named_parameters();
  double largest = 0;
  for (const auto& parameter : whole.parameters()) {
    if (parameter.grad().defined() && parameter.numel() > 0)
      largest = std::max(largest, parameter.grad().abs().max().item<double>());
  }
  // Gradients that cancel, such as that of a bias of keys, have the rounding errors of their terms.
  const double least_largest = 0.01 * largest;
  for (const auto& item : whole.named_parameters()) {
    const auto& own = parameters[item.key()];
    const auto& expected = item.value().grad();
    if (!expected.defined() && !own.grad().defined()) continue;
    const torch::NoGradGuard no_grad;
    const auto whole_gradient = expected.defined() ? expected : torch::zeros_like(item.value());
    const auto* cut = sharded_parameter_of(own);
    const auto problem =
        difference("the gradient of '" + item.key() + "'",
                   cut != nullptr ? part_of_cut(whole_gradient, *cut) : whole_gradient,
                   own.grad().defined() ? own.grad() : torch::zeros_like(own), tolerance, least_largest);
    if (!problem) continue;
    return *problem + ". " +
           (cut != nullptr
                ? "The plan misses a layer after it, or the module uses its output in another way than layers"
                : "The module uses it with parts of features, so each rank has a part of its gradient: add "
                  "the "
                  "layer to the plan, or use it as ParallelAxis::copy_to_parts() returns it");
  }
  return std::nullopt;
}

}  // namespace

ParallelizedPair::ParallelizedPair(const ReplicaAxis& axis, const ParallelPlan& plan,
                                   std::shared_ptr<torch::nn::Module> whole,
                                   std::shared_ptr<torch::nn::Module> parallelized)
    : axis_(axis.name()), whole_(std::move(whole)), parallelized_(std::move(parallelized)) {
  if (whole_ == nullptr || parallelized_ == nullptr || whole_ == parallelized_) {
    throw InvalidArgument(
        c10::str("[check_parallelized] expected a function that makes a new module in each call, but got ",
                 whole_ != nullptr && whole_ == parallelized_ ? "the same one twice" : "an empty one"));
  }
  copy_module_state({whole_, parallelized_}, 0);
  parallelize_layers(*whole_, axis, {});
  parallelize_layers(*parallelized_, axis, plan);
  register_module("whole", whole_)->eval();
  register_module("parallelized", parallelized_)->eval();
}

void ParallelizedPair::compare(ReplicaContext& replica, const Forward& forward_whole,
                               const Forward& forward_parallelized, const CheckParallelizedOptions& options) {
  const at::AutoGradMode with_gradients(true);
  ReplicaAxis& axis = replica.axis(axis_);
  const auto refuse = [&](const Problem& problem) {
    // All ranks throw, so that none waits for another one's collectives.
    if (axis.sum_on_host(problem ? 1 : 0) == 0) return;
    throw InvalidArgument("[check_parallelized] expected the values of the whole module, but " +
                          (problem ? c10::str("on rank ", replica.rank(), " ", *problem)
                                   : "another rank along the axis " + axis_ + " has other ones"));
  };
  std::vector<LayerCall> calls;
  const torch::Tensor expected = observed(
      *whole_, replica, forward_whole, [&](const auto& layer, const auto& input, const auto& output) {
        calls.push_back({layer.name(), input.detach().clone(), output.detach().clone()});
      });
  CallComparison comparison(std::move(calls), options.tolerance);
  const torch::Tensor result = observed(*parallelized_, replica, forward_parallelized,
                                        [&](const auto& layer, const auto& input, const auto& output) {
                                          comparison.observe(layer, input, output);
                                        });
  comparison.end(expected, result);
  refuse(comparison.problem());
  if (!expected.requires_grad() || !result.requires_grad()) return;
  backward_of_waves(expected);
  backward_of_waves(result);
  refuse(gradients_differ(*whole_, *parallelized_, options.tolerance));
}

void with_equal_random_numbers(const std::function<void()>& make) {
  const auto generator = at::detail::createCPUGenerator(1);
  const RankRandom apart(generator);
  make();
}

}  // namespace lockstep::detail
