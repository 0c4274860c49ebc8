#include "lockstep/training/state/internal/whole_tensors.h"

#include <ATen/ops/empty_strided.h>
#include <c10/util/StringUtil.h>

#include <optional>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/gradients/state_slice.h"

namespace lockstep {
namespace {

/// Bytes of tensors that are exchanged at once, since a small exchange is mostly waiting.
constexpr size_t kBytesAtOnce = size_t{4} << 20;

/// Returns the piece's place in the whole tensor, or none if it does not fit there.
std::optional<torch::Tensor> place_of(const TensorPiece& piece, const torch::Tensor& whole) {
  const auto& [offset, elements, begin] = piece;
  if (begin.empty()) {
    if (offset + elements.numel() > whole.numel()) return std::nullopt;
    return elements_of(whole, offset, elements.numel());
  }
  if (elements.dim() != whole.dim() || static_cast<int64_t>(begin.size()) != whole.dim()) return std::nullopt;
  torch::Tensor place = whole;
  for (int64_t dim = 0; dim < whole.dim(); ++dim) {
    const int64_t first = begin[static_cast<size_t>(dim)];
    if (first < 0 || first + elements.size(dim) > whole.size(dim)) return std::nullopt;
    place = place.narrow(dim, first, elements.size(dim));
  }
  return place;
}

}  // namespace

WholeTensors::WholeTensors(Strategy& strategy, std::vector<torch::Tensor> divided,
                           const std::vector<torch::Tensor>& wanted)
    : strategy_(strategy), divided_(std::move(divided)) {
  for (const auto& tensor : wanted) wanted_.insert(pieces_of(tensor));
}

void WholeTensors::exchange_next() {
  whole_.clear();
  const size_t first = num_exchanged_;
  std::vector<torch::Tensor> own;
  for (size_t bytes = 0; num_exchanged_ < divided_.size(); ++num_exchanged_) {
    const torch::Tensor& tensor = divided_[num_exchanged_];
    if (num_exchanged_ > first && bytes + tensor.nbytes() > kBytesAtOnce) break;
    bytes += tensor.nbytes();
    for (const auto& [offset, elements, begin] : *pieces_of(tensor)) {
      std::vector<int64_t> head{static_cast<int64_t>(num_exchanged_), offset};
      head.insert(head.end(), begin.begin(), begin.end());
      own.push_back(torch::tensor(head, torch::kLong));
      own.push_back(elements.detach());
    }
    if (!wanted_.contains(pieces_of(tensor))) continue;
    whole_.emplace(pieces_of(tensor), std::pair(at::empty_strided(tensor.sizes(), tensor.strides(),
                                                                  tensor.options().device(torch::kCPU)),
                                                int64_t{0}));
  }
  for (const auto& of_worker : strategy_.extended().gather_tensors(own)) {
    for (size_t i = 0; i < of_worker.size(); i += 2) {
      const auto* head = of_worker[i].const_data_ptr<int64_t>();
      add_piece(static_cast<size_t>(head[0]), {.offset = head[1],
                                               .elements = of_worker[i + 1],
                                               .begin = {head + 2, head + of_worker[i].numel()}});
    }
  }
}

void WholeTensors::add_piece(size_t number, const TensorPiece& piece) {
  const auto found = whole_.find(pieces_of(divided_.at(number)));
  if (found == whole_.end()) return;
  auto& [tensor, count] = found->second;
  count += piece.elements.numel();
  if (const auto place = place_of(piece, tensor)) place->copy_(piece.elements);  // else the count tells
}

torch::Tensor WholeTensors::operator()(const torch::Tensor& tensor) {
  const void* key = pieces_of(tensor);
  if (key == nullptr) return tensor;
  const torch::NoGradGuard no_grad;
  auto found = whole_.find(key);
  while (found == whole_.end() && num_exchanged_ < divided_.size()) {
    exchange_next();
    found = whole_.find(key);
  }
  TORCH_CHECK(found != whole_.end(), "a divided tensor that was not announced, or was asked for too late");
  const auto [whole, count] = found->second;
  whole_.erase(found);
  if (count != whole.numel()) {
    throw InvalidArgument(c10::str("[TrainingState] expected the replicas to hold each of the ",
                                   whole.numel(), " elements of a tensor of sizes ", whole.sizes(),
                                   " once, but they hold ", count));
  }
  return whole;
}

void WholeTensors::finish() {
  const torch::NoGradGuard no_grad;
  wanted_.clear();
  while (num_exchanged_ < divided_.size()) exchange_next();
  whole_.clear();
}

std::vector<torch::Tensor> divided_tensors_in(const StateValue& state) {
  std::vector<torch::Tensor> divided;
  std::unordered_set<const void*> known;
  visit_tensors(state, [&](const std::string&, const torch::Tensor& tensor) {
    if (pieces_of(tensor) != nullptr && known.insert(pieces_of(tensor)).second) divided.push_back(tensor);
  });
  return divided;
}

void write_whole_tensors(Strategy& strategy, const StateValue::Dict& all, const StateValue::Dict& own,
                         const std::function<void(WholeTensors&)>& write) {
  const bool writes = write != nullptr;
  WholeTensors whole(strategy, divided_tensors_in(StateValue(all)),
                     writes ? divided_tensors_in(StateValue(own)) : std::vector<torch::Tensor>());
  try {
    if (writes) write(whole);
  } catch (...) {
    whole.finish();
    throw;
  }
  whole.finish();
}

StateValue::Dict with_whole_tensors(Strategy& strategy, const StateValue::Dict& all,
                                    const StateValue::Dict& own) {
  StateValue result;
  write_whole_tensors(strategy, all, own, [&](WholeTensors& whole) {
    result = map_tensors<torch::Tensor>(StateValue(own),
                                        [&](const torch::Tensor& tensor) { return whole(tensor); });
  });
  return *result.get_if<StateValue::Dict>();
}

}  // namespace lockstep
