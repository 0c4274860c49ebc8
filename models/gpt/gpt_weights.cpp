#include "lockstep/models/gpt/gpt_weights.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <stdexcept>

#include "lockstep/models/gpt/internal/weight_files.h"
#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"

namespace lockstep {
namespace {

std::string spelled_shape(torch::IntArrayRef shape) {
  return c10::str(shape);
}

/// The tensors of a file by the names of GPT2LMHeadModel or LlamaForCausalLM. Each is taken once.
class FileWeights {
 public:
  FileWeights(const GptWeights& tensors, GptFamily family, const std::string& source) : source_(source) {
    const auto has_prefix = [](const auto& item) { return item.first.starts_with(kGpt2Prefix); };
    is_without_prefix_ =
        family == GptFamily::kGpt2 && std::none_of(tensors.begin(), tensors.end(), has_prefix);
    for (const auto& [name, tensor] : tensors) {
      const std::string full =
          is_without_prefix_ && name != kHeadName ? std::string(kGpt2Prefix) + name : name;
      if (!tensor.defined()) refuse(full, "a tensor", "an undefined one");
      if (is_saved_constant(full, family)) continue;
      if (!by_name_.emplace(full, tensor).second) refuse(full, "one such tensor", "two");
    }
  }

  torch::Tensor take(const FileTensor& expected) {
    const auto found = by_name_.find(expected.name);
    if (found == by_name_.end()) refuse(expected.name, spelled_shape(expected.shape), "no such tensor");
    const torch::Tensor tensor = found->second;
    if (tensor.sizes() != torch::IntArrayRef(expected.shape))
      refuse(expected.name, spelled_shape(expected.shape), spelled_shape(tensor.sizes()));
    if (!tensor.is_floating_point())
      refuse(expected.name, "floating-point numbers", c10::toString(tensor.scalar_type()));
    by_name_.erase(found);
    return tensor;
  }

  /// Takes the head of a model that has none of its own.
  void take_tied_head(const torch::Tensor& tokens, const std::string& name_of_tokens) {
    const auto found = by_name_.find(kHeadName);
    if (found == by_name_.end()) return;
    if (!found->second.equal(tokens.to(found->second.scalar_type()))) {
      refuse(kHeadName, c10::str("the values of '", shown_name(name_of_tokens), "', as has_tied_head says"),
             "others");
    }
    by_name_.erase(found);
  }

  void check_all_taken() const {
    if (!by_name_.empty()) {
      const auto& [name, tensor] = *by_name_.begin();
      refuse(name, "no such tensor", spelled_shape(tensor.sizes()));
    }
  }

 private:
  /// The name in the file.
  std::string shown_name(const std::string& name) const {
    return is_without_prefix_ && name.starts_with(kGpt2Prefix)
               ? name.substr(std::string_view(kGpt2Prefix).size())
               : name;
  }

  [[noreturn]] void refuse(const std::string& name, const std::string& expected,
                           const std::string& actual) const {
    throw std::invalid_argument(
        c10::str(source_, ": tensor '", shown_name(name), "': expected ", expected, ", but got ", actual));
  }

  const std::string& source_;
  bool is_without_prefix_ = false;
  std::map<std::string, torch::Tensor> by_name_;
};

}  // namespace

GptWeights gpt_weights_from_file(const GptOptions& given, const GptWeights& tensors,
                                 const std::string& source) {
  const GptOptions options = complete_gpt_options(given);
  const GptFamily family = gpt_family(options);
  FileWeights file(tensors, family, source);
  GptWeights weights;
  for (const auto& place : weight_places(options, family)) {
    std::vector<torch::Tensor> parts;
    parts.reserve(place.parts.size());
    for (const auto& part : place.parts) parts.push_back(file.take(part));
    torch::Tensor tensor = parts.size() == 1 ? parts.front() : torch::cat(parts);
    weights.emplace_back(place.own_name, place.is_transposed ? tensor.t() : std::move(tensor));
  }
  if (options.has_tied_head) file.take_tied_head(weights.front().second, tokens_name(family));
  file.check_all_taken();
  return weights;
}

void load_gpt_weights(Gpt& model, const GptWeights& tensors, const std::string& source) {
  const GptWeights weights = gpt_weights_from_file(model->options(), tensors, source);
  const torch::NoGradGuard no_grad;
  const auto parameters = model->named_parameters();
  for (const auto& [name, tensor] : weights) {
    const auto* part = sharded_parameter_of(parameters[name]);
    parameters[name].copy_(part != nullptr ? part_of_values(tensor, *part) : tensor);
  }
}

GptWeights gpt_weights_for_file(const Gpt& model) {
  const GptFamily family = gpt_family(model->options());
  const auto parameters = model->named_parameters();
  GptWeights tensors;
  for (const auto& place : weight_places(model->options(), family)) {
    const auto weight = parameters[place.own_name].detach();
    if (const auto* cut = sharded_parameter_of(weight)) {
      throw InvalidArgument(c10::str("[gpt_weights_for_file] expected a whole model, but '", place.own_name,
                                     "' is this rank's part along the axis ", cut->axis,
                                     ": save the weights with a checkpoint, and convert that"));
    }
    if (place.is_transposed) {
      tensors.emplace_back(place.parts.front().name, weight.t());
      continue;
    }
    int64_t begin = 0;
    for (const auto& part : place.parts) {
      tensors.emplace_back(part.name, weight.narrow(0, begin, part.shape.front()));
      begin += part.shape.front();
    }
  }
  return tensors;
}

}  // namespace lockstep
