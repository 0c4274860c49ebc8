#include "lockstep/training/state/internal/sharded_states.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/StringUtil.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/optimizer_group.h"
#include "lockstep/runtime/gradients/state_slice.h"
#include "lockstep/training/state/internal/text_tensor.h"
#include "lockstep/training/state/optimizer_state.h"
#include "lockstep/training/state/state_dict.h"

namespace lockstep {
namespace {

/// Bytes of parameters whose states are exchanged at once.
constexpr int64_t kBytesAtOnce = int64_t{64} << 20;

/// The dimension of pieces that are slices of memory.
constexpr int64_t kInMemory = -1;

/// A parameter as a whole, of which the replicas may hold parts.
struct WholeParameter {
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t bytes = 0;
  size_t group = 0;  // of an optimizer

  explicit WholeParameter(const torch::Tensor& tensor, size_t group = 0) : group(group) {
    const auto* shard = sharded_parameter_of(tensor);
    sizes = shard != nullptr ? shard->sizes : tensor.sizes().vec();
    strides = shard != nullptr ? shard->strides : tensor.strides().vec();
    bytes = static_cast<int64_t>(tensor.element_size()) *
            (shard != nullptr ? shard->num_elements() : tensor.numel());
  }
};

/// Elements of a parameter that a replica holds: in its memory, or along a dimension (see ShardedParameter).
struct Piece {
  size_t parameter = 0;
  int64_t offset = 0;
  int64_t length = 0;
  torch::Tensor tensor;
  int64_t dim = kInMemory;
};

/// A range of parameters, by their numbers.
struct Range {
  size_t begin = 0;
  size_t end = 0;

  bool contains(size_t number) const { return number >= begin && number < end; }
};

std::vector<Range> ranges_of(const std::vector<WholeParameter>& parameters) {
  std::vector<Range> ranges;
  int64_t bytes = kBytesAtOnce;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (bytes >= kBytesAtOnce) {
      ranges.push_back({i, i});
      bytes = 0;
    }
    ranges.back().end = i + 1;
    bytes += parameters[i].bytes;
  }
  return ranges;
}

/// Values of whole parameters, put together from those of pieces.
class WholeValues {
 public:
  explicit WholeValues(const std::vector<WholeParameter>& parameters) : parameters_(parameters) {}

  /// Appends the piece's place and its number of values to `sent`, and then the name and value of each.
  static void append(const Piece& piece, const StateValue::Dict& values, std::vector<torch::Tensor>& sent) {
    if (values.entries.empty()) return;
    sent.push_back(torch::tensor({static_cast<int64_t>(piece.parameter), piece.offset, piece.length,
                                  piece.dim, static_cast<int64_t>(values.entries.size())}));
    for (const auto& [name, value] : values.entries) {
      sent.push_back(text_tensor(std::get<std::string>(name)));
      sent.push_back(*value.get_if<torch::Tensor>());
    }
  }
  /// Adds what append() has appended.
  void add(const std::vector<torch::Tensor>& received) {
    for (auto next = received.begin(); next != received.end();) {
      const auto* head = (next++)->const_data_ptr<int64_t>();
      const Piece piece{.parameter = static_cast<size_t>(head[0]),
                        .offset = head[1],
                        .length = head[2],
                        .tensor = torch::Tensor(),
                        .dim = head[3]};
      for (int64_t count = head[4]; count > 0; --count) {
        const std::string name = text_of_tensor(*next++);
        add_value(piece, name, *next++);
      }
    }
  }
  /// Throws InvalidArgument unless the pieces hold each element of a parameter's values once.
  const std::map<int64_t, StateValue::Dict>& values() const {
    for (const auto& [key, count] : num_elements_) {
      const int64_t expected = c10::multiply_integers(parameters_[key.first].sizes);
      if (count == expected) continue;
      throw InvalidArgument(c10::str("[TrainingState] expected the replicas to hold each of the ", expected,
                                     " elements of '", key.second, "' of parameter ", key.first,
                                     " once, but they hold ", count));
    }
    return values_;
  }

 private:
  void add_value(const Piece& piece, const std::string& name, const torch::Tensor& value) {
    auto& of_parameter = values_[static_cast<int64_t>(piece.parameter)];
    const StateValue* known = of_parameter.find(name);
    const bool has_elements = value.sizes() == sizes_of(piece);
    if (known != nullptr && !has_elements) return;  // a number, the same for all pieces
    if (known == nullptr) {
      const WholeParameter& like = parameters_[piece.parameter];
      of_parameter.add(name,
                       has_elements ? at::empty_strided(like.sizes, like.strides, value.options()) : value);
      known = of_parameter.find(name);
    }
    if (!has_elements) return;
    const auto& whole = *known->get_if<torch::Tensor>();
    const auto target = piece.dim == kInMemory ? elements_of(whole, piece.offset, piece.length)
                                               : whole.narrow(piece.dim, piece.offset, piece.length);
    target.copy_(value);
    num_elements_[{piece.parameter, name}] += value.numel();
  }

  std::vector<int64_t> sizes_of(const Piece& piece) const {
    if (piece.dim == kInMemory) return {piece.length};
    auto sizes = parameters_[piece.parameter].sizes;
    sizes[static_cast<size_t>(piece.dim)] = piece.length;
    return sizes;
  }

  const std::vector<WholeParameter>& parameters_;
  std::map<int64_t, StateValue::Dict> values_;
  std::map<std::pair<size_t, std::string>, int64_t> num_elements_;  // of each value, put together so far
};

/// Returns whether no replica of a lower id has the same shards along the axis.
bool has_first_copy(const Strategy& strategy, const std::string& axis, int local) {
  const auto first = strategy.mesh().groups(axis).front();
  return std::find(first.begin(), first.end(), strategy.first_local_replica() + local) != first.end();
}

/// Appends the tensor as a piece if it is a shard with elements that no earlier replica has.
void append_shard(const Strategy& strategy, int local, size_t parameter, const torch::Tensor& tensor,
                  std::vector<Piece>& pieces) {
  const auto* shard = sharded_parameter_of(tensor);
  if (shard == nullptr || shard->length == 0 || !has_first_copy(strategy, shard->axis, local)) return;
  pieces.push_back({parameter, shard->offset, shard->length, tensor, shard->dim.value_or(kInMemory)});
}

/// Returns the pieces of the optimizer's parameters whose state the local replica holds, and none of the
/// earlier ones.
std::vector<Piece> pieces_of(const Strategy& strategy, int local, const torch::optim::Optimizer& optimizer,
                             const ShardedParameters* part) {
  std::vector<Piece> pieces;
  if (part != nullptr) {
    for (size_t i = 0; i < part->slices().size(); ++i) {
      const ParameterSlice& slice = part->slices()[i];
      pieces.push_back({slice.parameter, slice.offset, slice.length, part->tensor(i)});
    }
    return pieces;
  }
  const auto parameters = parameters_of(optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) append_shard(strategy, local, i, parameters[i], pieces);
  return pieces;
}

}  // namespace

void refuse_shards(const std::string& who, const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (!is_shard(item.value())) continue;
    throw InvalidArgument("[" + who + "] expected whole parameters, but '" + item.key() +
                          "' is a replica's shard of one");
  }
}

torch::Tensor shard_of_values(const torch::Tensor& values, const ShardedParameter& shard) {
  if (shard.dim) {
    return values.narrow(*shard.dim, shard.offset, shard.length).clone(torch::MemoryFormat::Contiguous);
  }
  return slice_of_values(values, {shard.sizes, shard.strides}, shard.offset, shard.length);
}

NamedTensors whole_tensors(Strategy& strategy, const std::vector<ModulePointer>& replicas,
                           NamedTensors tensors, bool is_wanted) {
  const torch::NoGradGuard no_grad;
  const bool has_shards =
      std::any_of(tensors.begin(), tensors.end(), [](const auto& named) { return is_shard(named.second); });
  if (!has_shards) return is_wanted ? std::move(tensors) : NamedTensors();
  std::vector<WholeParameter> parameters;
  std::map<std::string, size_t> numbers;
  for (const auto& [name, tensor] : tensors) {
    numbers[name] = parameters.size();
    parameters.emplace_back(tensor);
  }
  std::vector<Piece> pieces;
  for (size_t local = 0; local < replicas.size(); ++local) {
    for (const auto& [name, tensor] : state_dict(*replicas[local])) {
      if (const auto number = numbers.find(name); number != numbers.end())
        append_shard(strategy, static_cast<int>(local), number->second, tensor, pieces);
    }
  }
  WholeValues whole(parameters);
  for (const Range& range : ranges_of(parameters)) {
    std::vector<torch::Tensor> own;
    for (const Piece& piece : pieces) {
      StateValue::Dict value;
      value.add("value", piece.tensor);
      if (range.contains(piece.parameter)) WholeValues::append(piece, value, own);
    }
    for (const auto& of_worker : strategy.extended().gather_tensors(own)) {
      if (is_wanted) whole.add(of_worker);
    }
  }
  if (!is_wanted) return {};
  const auto& values = whole.values();
  for (auto& [name, tensor] : tensors) {
    if (!is_shard(tensor)) continue;
    const size_t number = numbers.at(name);
    const auto found = values.find(static_cast<int64_t>(number));
    tensor = found != values.end()
                 ? *found->second.find("value")->get_if<torch::Tensor>()
                 : at::empty_strided(parameters[number].sizes, parameters[number].strides,
                                     tensor.options().device(torch::kCPU));  // which has no elements
  }
  return tensors;
}

StateValue::Dict whole_optimizer_state(Strategy& strategy,
                                       const std::vector<torch::optim::Optimizer*>& replicas,
                                       bool is_wanted) {
  const torch::NoGradGuard no_grad;
  const auto parts = strategy.extended().optimizer_parts(*replicas[0]);
  std::vector<WholeParameter> parameters;
  bool is_divided = !parts.empty();
  for (size_t group = 0; group < replicas[0]->param_groups().size(); ++group) {
    for (const auto& tensor : replicas[0]->param_groups()[group].params()) {
      parameters.emplace_back(tensor, group);
      is_divided = is_divided || is_shard(tensor);
    }
  }
  if (!is_divided) return is_wanted ? optimizer_state(*replicas[0]) : StateValue::Dict();
  std::vector<std::vector<Piece>> pieces;
  for (size_t local = 0; local < replicas.size(); ++local) {
    pieces.emplace_back();
    if (!parts.empty() && parts[local] == nullptr) continue;
    pieces.back() = pieces_of(strategy, static_cast<int>(local), *replicas[local],
                              parts.empty() ? nullptr : parts[local]);
  }
  WholeValues whole(parameters);
  for (const Range& range : ranges_of(parameters)) {
    std::vector<torch::Tensor> own;
    for (size_t local = 0; local < replicas.size(); ++local) {
      for (const Piece& piece : pieces[local]) {
        if (!range.contains(piece.parameter)) continue;
        const size_t group = parameters[piece.parameter].group;
        WholeValues::append(piece, state_of_tensor(*replicas[local], group, piece.tensor), own);
      }
    }
    for (const auto& of_worker : strategy.extended().gather_tensors(own)) {
      if (is_wanted) whole.add(of_worker);
    }
  }
  return is_wanted ? optimizer_state_with(*replicas[0], whole.values()) : StateValue::Dict();
}

}  // namespace lockstep
