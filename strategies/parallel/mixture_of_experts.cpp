#include "lockstep/strategies/parallel/mixture_of_experts.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/utils.h>

#include <cmath>
#include <numeric>
#include <ostream>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/collectives.h"
#include "lockstep/runtime/replicas/wait_clock.h"
#include "lockstep/strategies/parallel/internal/expert_linear.h"

namespace lockstep {
namespace {

constexpr const char* kMixture = "MixtureOfExperts";

const MixtureOfExpertsOptions& checked_mixture(const MixtureOfExpertsOptions& options) {
  if (options.features < 1 || options.hidden_features < 1) {
    throw InvalidArgument(c10::str("[", kMixture,
                                   "] expected 1 or more features and hidden_features, but got ",
                                   options.features, " and ", options.hidden_features));
  }
  if (options.num_experts < 1)
    throw InvalidArgument(
        c10::str("[", kMixture, "] expected num_experts of 1 or more, but got ", options.num_experts));
  if (options.experts_per_token < 1 || options.experts_per_token > options.num_experts) {
    throw InvalidArgument(c10::str("[", kMixture, "] expected experts_per_token from 1 to the ",
                                   options.num_experts, " experts, but got ", options.experts_per_token));
  }
  if (options.num_shared_experts < 0) {
    throw InvalidArgument(c10::str("[", kMixture, "] expected num_shared_experts of 0 or more, but got ",
                                   options.num_shared_experts));
  }
  if (options.capacity_factor && !(*options.capacity_factor > 0 && std::isfinite(*options.capacity_factor))) {
    throw InvalidArgument(
        c10::str("[", kMixture, "] expected a capacity_factor above 0, but got ", *options.capacity_factor));
  }
  return options;
}

/// Returns the number of tokens of a sequence that an expert takes.
int64_t capacity_of(const MixtureOfExpertsOptions& options, int64_t tokens) {
  const double even = static_cast<double>(options.experts_per_token) * static_cast<double>(tokens) /
                      static_cast<double>(options.num_experts);
  // A product that is a whole number up to rounding is that number.
  return static_cast<int64_t>(std::ceil(*options.capacity_factor * even - 1e-9));
}

/// Returns for each choice how many earlier ones of its group there are. `groups` is int64, of numbers below
/// that of `sizes`, which says how often each occurs.
at::Tensor places_in_groups(const at::Tensor& groups, const at::Tensor& sizes) {
  const auto by_group = at::argsort(groups, /*stable=*/true, 0, /*descending=*/false);
  const auto begins = sizes.cumsum(0) - sizes;
  const auto in_order =
      at::arange(groups.size(0), groups.options()) - begins.index_select(0, groups.index_select(0, by_group));
  return at::empty_like(groups).index_copy_(0, by_group, in_order);
}

/// The parts of each sequence of which a rank's tokens consist.
struct TokenChunks {
  at::Tensor of_tokens;  ///< int64 [tokens]: the number of each token's chunk
  int64_t count = 1;     ///< of this rank's chunks
  at::Tensor places;     ///< int64 [count]: how many of all ranks' chunks come before each in the sequence
  int64_t of_all = 1;    ///< all ranks' chunks
  int64_t length = 0;    ///< tokens of the whole sequence
};

TokenChunks chunks_of_order(const ContextOrder& order, const at::TensorOptions& options) {
  const auto own = order.chunks_of(order.index());
  std::vector<int64_t> lengths;
  std::vector<int64_t> places(own.size(), 0);
  for (size_t i = 0; i < own.size(); ++i) {
    lengths.push_back(own[i].length);
    for (int rank = 0; rank < order.ranks(); ++rank) {
      for (const auto& chunk : order.chunks_of(rank))
        places[i] += std::pair(chunk.begin, chunk.length) < std::pair(own[i].begin, own[i].length) ? 1 : 0;
    }
  }
  const auto count = static_cast<int64_t>(own.size());
  return {
      .of_tokens =
          at::arange(count, at::kLong).repeat_interleave(at::tensor(lengths, at::kLong)).to(options.device()),
      .count = count,
      .places = at::tensor(places, at::kLong).to(options.device()),
      .of_all = count * order.ranks(),
      .length = order.length()};
}

TokenChunks one_chunk(int64_t tokens, const at::TensorOptions& options) {
  return {.of_tokens = at::zeros({tokens}, options), .places = at::zeros({1}, options), .length = tokens};
}

std::vector<int64_t> numbers_in(const at::Tensor& counts) {
  const auto* first = counts.const_data_ptr<int64_t>();
  return {first, first + counts.numel()};
}

/// The rows of experts and the tokens that they belong to.
struct RowPlaces {
  at::Tensor tokens;  ///< int64 [rows]: the token of each row
  at::Tensor rows;    ///< int64 [tokens, choices]: the row of each choice; the number of rows if it has none
};

at::Tensor rows_of_tokens(const at::Tensor& tokens, const RowPlaces& places);

/// Returns for each token the sum of its rows. Unlike index_add(), it takes all cores.
at::Tensor sums_of_rows(const at::Tensor& rows, const RowPlaces& places);

struct RowsOfTokens : torch::autograd::Function<RowsOfTokens> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& tokens,
                            const at::Tensor& token_of_row, const at::Tensor& rows_of_token) {
    context->saved_data["tokens"] = token_of_row;
    context->saved_data["rows"] = rows_of_token;
    return tokens.index_select(0, token_of_row);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {sums_of_rows(gradients[0],
                         {context->saved_data["tokens"].toTensor(), context->saved_data["rows"].toTensor()}),
            {},
            {}};
  }
};

struct SumsOfRows : torch::autograd::Function<SumsOfRows> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& rows,
                            const at::Tensor& token_of_row, const at::Tensor& rows_of_token) {
    context->saved_data["tokens"] = token_of_row;
    context->saved_data["rows"] = rows_of_token;
    const bool has_dropped = rows.size(0) < rows_of_token.numel();
    const auto all = has_dropped ? at::cat({rows, at::zeros({1, rows.size(1)}, rows.options())}) : rows;
    const auto places = rows_of_token.t().contiguous();
    auto sum = all.index_select(0, places[0]);
    for (int64_t choice = 1; choice < places.size(0); ++choice) sum += all.index_select(0, places[choice]);
    return sum;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {rows_of_tokens(gradients[0], {context->saved_data["tokens"].toTensor(),
                                          context->saved_data["rows"].toTensor()}),
            {},
            {}};
  }
};

at::Tensor rows_of_tokens(const at::Tensor& tokens, const RowPlaces& places) {
  return RowsOfTokens::apply(tokens, places.tokens, places.rows);
}

at::Tensor sums_of_rows(const at::Tensor& rows, const RowPlaces& places) {
  return SumsOfRows::apply(rows, places.tokens, places.rows);
}

bool is_computed_again() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

}  // namespace

/// The choices of all tokens: of token t, those from t * experts_per_token on.
struct MixtureOfExpertsImpl::Routing {
  at::Tensor weights;           ///< [choices]
  at::Tensor order;             ///< int64: the choices that are not dropped, by expert, then by token
  std::vector<int64_t> counts;  ///< of those, by expert
  at::Tensor balance_loss, z_loss;
  at::Tensor load, dropped;  ///< see RoutingStatistics, on the CPU
  int64_t not_finite = 0;
};

MixtureOfExpertsImpl::MixtureOfExpertsImpl(const MixtureOfExpertsOptions& options)
    : options_(checked_mixture(options)) {
  reset();
}

MixtureOfExpertsImpl::MixtureOfExpertsImpl(const ReplicaAxis& axis, const MixtureOfExpertsOptions& options)
    : options_(checked_mixture(options)) {
  ParallelAxis(kMixture, axis, AxisRole::kData).share_of(options.num_experts, "num_experts");
  reset();
  cut(axis);
}

void MixtureOfExpertsImpl::reset() {
  if (axis_) {
    throw InvalidArgument(c10::str("[", kMixture,
                                   "] expected to clone a layer with all experts, but this one has those of "
                                   "one rank"));
  }
  const auto make = [&](const std::string& name, std::vector<int64_t> shape, bool bias) {
    return register_module(name, ExpertWeights(ExpertWeightsOptions{std::move(shape), bias}));
  };
  const int64_t experts = options_.num_experts;
  const int64_t hidden = options_.hidden_features;
  const int64_t shared = options_.num_shared_experts * hidden;
  const int64_t features = options_.features;
  const bool has_gate = options_.activation == ExpertActivation::kSwiGlu;
  router_ = make("router", {experts, features}, /*bias=*/false);
  if (has_gate) gate_ = make("gate", {experts, hidden, features}, options_.bias);
  up_ = make("up", {experts, hidden, features}, options_.bias);
  down_ = make("down", {experts, features, hidden}, options_.bias);
  if (shared > 0) {
    if (has_gate) shared_gate_ = make("shared_gate", {shared, features}, options_.bias);
    shared_up_ = make("shared_up", {shared, features}, options_.bias);
    shared_down_ = make("shared_down", {features, shared}, options_.bias);
  }
  reset_statistics();
}

void MixtureOfExpertsImpl::cut(const ReplicaAxis& axis) {
  ParallelAxis ranks(kMixture, axis, AxisRole::kData);
  ranks.share_of(options_.num_experts, "num_experts");
  if (axis.size() == 1) return;
  for (const auto& weights : {gate_, up_, down_}) {
    if (!weights.is_empty()) weights.ptr()->cut(axis);
  }
  axis_ = std::move(ranks);
}

void MixtureOfExpertsImpl::share_sequences(const ReplicaAxis& axis) {
  ParallelAxis ranks(kMixture, axis, AxisRole::kContext);
  if (axis.size() > 1) tokens_ = std::move(ranks);
}

void MixtureOfExpertsImpl::bind(std::shared_ptr<const ReplicaCollectives> replica) {
  if (axis_) axis_->bind(replica);
  if (tokens_) tokens_->bind(std::move(replica));
}

RoutingStatistics MixtureOfExpertsImpl::statistics() const {
  return {statistics_.load.clone(), statistics_.dropped.clone(), statistics_.not_finite};
}

void MixtureOfExpertsImpl::reset_statistics() {
  statistics_ = {torch::zeros({options_.num_experts}, torch::kLong),
                 torch::zeros({options_.num_experts}, torch::kLong), 0};
}

void MixtureOfExpertsImpl::count(const Routing& routing) {
  statistics_.load += routing.load;
  statistics_.dropped += routing.dropped;
  statistics_.not_finite += routing.not_finite;
}

MixtureOfExpertsImpl::Routing MixtureOfExpertsImpl::route(const torch::Tensor& input, bool is_training,
                                                          const ContextOrder* order) const {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const int64_t experts = options_.num_experts;
  const int64_t chosen_of_token = options_.experts_per_token;
  const int64_t tokens = input.size(-2);
  const auto longs = at::TensorOptions(at::kLong).device(input.device());
  const auto chunks = order != nullptr ? chunks_of_order(*order, longs) : one_chunk(tokens, longs);
  const auto of_sequences = input.sizes().slice(0, static_cast<size_t>(input.dim() - 2));
  const int64_t sequences = c10::multiply_integers(of_sequences);
  const auto exact = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto logits =
      at::linear(input.reshape({sequences, tokens, options_.features}).to(exact), router_->weight.to(exact));
  const auto probabilities = logits.softmax(-1);
  const auto [values, chosen] = probabilities.topk(chosen_of_token, -1);
  const bool is_normal = options_.normalizes && chosen_of_token > 1;

  Routing routing;
  routing.weights = (is_normal ? values / values.sum(-1, /*keepdim=*/true) : values).flatten();
  const auto group = (chunks.of_tokens * experts).unsqueeze(1) + chosen;  // in its sequence
  const auto counts = at::zeros({sequences, chunks.count * experts}, longs)
                          .scatter_add_(1, group.flatten(1), at::ones_like(group).flatten(1))
                          .view({sequences, chunks.count, experts});
  auto counts_of_all = counts;  // by chunk of the whole sequence
  if (order != nullptr) {
    counts_of_all =
        at::zeros({sequences, chunks.of_all, experts}, longs).index_add_(1, chunks.places, counts);
    tokens_->sum_(counts_of_all);
  }
  const auto share = counts_of_all.sum(1).to(exact) / static_cast<double>(chunks.length * chosen_of_token);
  const auto part_of_mean = [&](const at::Tensor& of_tokens) {
    return of_tokens.sum(1) / static_cast<double>(chunks.length);
  };
  routing.balance_loss =
      ((share * part_of_mean(probabilities)).sum(-1) * static_cast<double>(experts)).view(of_sequences);
  routing.z_loss = part_of_mean(logits.logsumexp(-1).square()).view(of_sequences);

  const auto expert = chosen.flatten();
  routing.order = at::argsort(expert, /*stable=*/true, 0, /*descending=*/false);
  auto kept = counts.flatten(0, 1).sum(0);
  if (is_training && options_.capacity_factor) {
    const int64_t groups = chunks.count * experts;
    const auto of_choice = (group + (at::arange(sequences, longs) * groups).view({-1, 1, 1})).flatten();
    const auto before = (counts_of_all.cumsum(1) - counts_of_all).index_select(1, chunks.places).flatten();
    const auto places = places_in_groups(of_choice, counts.flatten()) + before.index_select(0, of_choice);
    const auto is_kept = places < capacity_of(options_, chunks.length);
    routing.order = routing.order.masked_select(is_kept.index_select(0, routing.order));
    kept = at::zeros({experts}, longs).scatter_add_(0, expert, is_kept.to(at::kLong));
  }
  const auto finite = logits.detach().isfinite().all(-1).sum().view({1});
  const auto numbers = at::cat({counts.flatten(0, 1).sum(0), kept, finite}).cpu();
  routing.load = numbers.narrow(0, 0, experts);
  const auto taken = numbers.narrow(0, experts, experts);
  routing.dropped = routing.load - taken;
  routing.counts = numbers_in(taken);
  routing.not_finite = sequences * tokens - numbers[2 * experts].item<int64_t>();
  return routing;
}

torch::Tensor MixtureOfExpertsImpl::activated(const torch::Tensor& up, const torch::Tensor& gate) const {
  switch (options_.activation) {
    case ExpertActivation::kGelu:
      return at::gelu(up);
    case ExpertActivation::kGeluTanh:
      return at::gelu(up, "tanh");
    case ExpertActivation::kSwiGlu:
      break;
  }
  return at::silu(gate) * up;
}

/// Maps the rows of each of this rank's experts, one expert after another. Experts without rows take part, so
/// that all have gradients.
torch::Tensor MixtureOfExpertsImpl::run_experts(const torch::Tensor& rows,
                                                const std::vector<int64_t>& counts) const {
  const auto layer = [&](const torch::Tensor& x, const ExpertWeights& weights) {
    return expert_linear(x, weights->stacked_weight(), weights->stacked_bias(), counts);
  };
  const auto gate = gate_.is_empty() ? at::Tensor() : layer(rows, gate_);
  return layer(activated(layer(rows, up_), gate), down_);
}

/// Sends the rows of all experts to their ranks, and returns what these make of them.
torch::Tensor MixtureOfExpertsImpl::run_experts_of_ranks(const torch::Tensor& rows,
                                                         const std::vector<int64_t>& counts) const {
  axis_->refuse_capture("experts of several ranks");
  const ReplicaBackends ranks = axis_->backends();
  ReplicaBackends on_host(ranks.host);
  on_host.announce = ranks.announce;
  const auto size = static_cast<size_t>(axis_->size());
  const size_t own_experts = counts.size() / size;
  const auto exchange = [&](const ReplicaBackends& channel, const std::vector<at::Tensor>& values) {
    const WaitClock::Wait wait(axis_->waits());
    return all_to_all(channel, values);
  };

  const auto counts_for_ranks = exchange(on_host, at::tensor(counts, at::kLong).chunk(axis_->size(), 0));
  std::vector<int64_t> for_ranks(size);
  std::vector<std::vector<int64_t>> from_ranks;  // for each rank: rows for each of this rank's experts
  for (size_t rank = 0; rank < size; ++rank) {
    const auto first = counts.begin() + static_cast<int64_t>(rank * own_experts);
    for_ranks[rank] = std::accumulate(first, first + static_cast<int64_t>(own_experts), int64_t{0});
    from_ranks.push_back(numbers_in(counts_for_ranks[rank]));
  }
  const auto received = exchange(ranks, rows.split_with_sizes(for_ranks, 0));

  std::vector<std::vector<at::Tensor>> pieces;  // for each rank, for each expert
  for (size_t rank = 0; rank < size; ++rank)
    pieces.push_back(received[rank].split_with_sizes(from_ranks[rank], 0));
  std::vector<at::Tensor> by_expert;
  std::vector<int64_t> sizes;  // of the same
  std::vector<int64_t> of_experts(own_experts, 0);
  for (size_t expert = 0; expert < own_experts; ++expert) {
    for (size_t rank = 0; rank < size; ++rank) {
      by_expert.push_back(pieces[rank][expert]);
      sizes.push_back(from_ranks[rank][expert]);
      of_experts[expert] += sizes.back();
    }
  }
  const auto results = run_experts(at::cat(by_expert, 0), of_experts).split_with_sizes(sizes, 0);
  std::vector<at::Tensor> back;
  for (size_t rank = 0; rank < size; ++rank) {
    std::vector<at::Tensor> of_rank;
    for (size_t expert = 0; expert < own_experts; ++expert) of_rank.push_back(results[expert * size + rank]);
    back.push_back(at::cat(of_rank, 0));
  }
  return at::cat(exchange(ranks, back), 0);
}

torch::Tensor MixtureOfExpertsImpl::run_shared_experts(const torch::Tensor& tokens) const {
  const auto linear = [](const torch::Tensor& x, const ExpertWeights& layer) {
    return at::linear(x, layer->weight, layer->bias);
  };
  const auto gate = shared_gate_.is_empty() ? at::Tensor() : linear(tokens, shared_gate_);
  return linear(activated(linear(tokens, shared_up_), gate), shared_down_);
}

MixtureOutput MixtureOfExpertsImpl::mix(const torch::Tensor& input, bool is_training,
                                        const ContextOrder& order) {
  const int ranks = tokens_ ? tokens_->size() : 1;
  const int index = tokens_ ? tokens_->index() : 0;
  if (order.ranks() != ranks || order.index() != index) {
    throw InvalidArgument(c10::str("[", kMixture, "] expected the order of rank ", index, " of ", ranks,
                                   ", but got that of rank ", order.index(), " of ", order.ranks()));
  }
  if (ranks == 1) return mix_tokens(input, is_training, nullptr);
  if (input.dim() >= 2 && input.size(-2) != order.tokens_of(index)) {
    throw InvalidArgument(c10::str("[", kMixture, "] expected the ", order.tokens_of(index),
                                   " tokens that this rank has of sequences of ", order.length(),
                                   ", but got an input of ", input.sizes()));
  }
  return mix_tokens(input, is_training, &order);
}

MixtureOutput MixtureOfExpertsImpl::mix_tokens(const torch::Tensor& input, bool is_training,
                                               const ContextOrder* order) {
  const int64_t fewest = order == nullptr ? 1 : 0;
  if (input.dim() < 2 || input.size(-1) != options_.features || input.size(-2) < fewest) {
    throw InvalidArgument(c10::str("[", kMixture, "] expected an input of [..., tokens, ", options_.features,
                                   "], but got ", input.sizes()));
  }
  const Routing routing = route(input, is_training, order);
  if (routing.not_finite > 0 && options_.refuses_not_finite) {
    throw std::domain_error(c10::str("[", kMixture, "] expected a router whose numbers are finite, but for ",
                                     routing.not_finite, " of ", input.numel() / options_.features,
                                     " tokens they are NaN or infinite"));
  }
  if (is_training && !is_computed_again()) count(routing);

  const auto tokens = input.reshape({-1, options_.features});
  const int64_t num_rows = routing.order.size(0);
  const auto row_of_choice =
      at::full_like(routing.weights, num_rows, routing.order.options())
          .index_copy_(0, routing.order, at::arange(num_rows, routing.order.options()));
  const RowPlaces places{routing.order.div(options_.experts_per_token, "floor"),
                         row_of_choice.view({-1, options_.experts_per_token})};
  const auto rows = rows_of_tokens(tokens, places);
  const auto results = axis_ ? run_experts_of_ranks(rows, routing.counts) : run_experts(rows, routing.counts);
  const auto weighted = results * routing.weights.index_select(0, routing.order).unsqueeze(1);
  auto sum = sums_of_rows(weighted, places);
  if (!shared_up_.is_empty()) sum = sum + run_shared_experts(tokens);
  return {sum.to(input.scalar_type()).view(input.sizes()), routing.balance_loss, routing.z_loss};
}

void MixtureOfExpertsImpl::pretty_print(std::ostream& stream) const {
  stream << "lockstep::MixtureOfExperts(features=" << options_.features
         << ", hidden_features=" << options_.hidden_features << ", num_experts=" << options_.num_experts
         << ", experts_per_token=" << options_.experts_per_token;
  if (axis_) stream << ", part " << axis_->index() << " of " << axis_->size();
  stream << ")";
}

}  // namespace lockstep
