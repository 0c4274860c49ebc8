#include "lockstep/apps/train_gpt/data/token_dataset.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/errors.h"

namespace lockstep::apps {

TokenDataset::TokenDataset(Source source, const SequenceRange& range)
    : source_(std::move(source)), range_(range) {
  const size_t size = std::visit([](const auto& sequences) { return *sequences.size(); }, source_);
  if (range.begin > size || range.count > size - range.begin) {
    throw InvalidArgument(c10::str("[TokenDataset] expected a range of ", size, " sequences, but got ",
                                   range.count, " from ", range.begin, " on"));
  }
}

torch::data::Example<> TokenDataset::get_batch(c10::ArrayRef<size_t> indices) const {
  std::vector<size_t> places;
  places.reserve(indices.size());
  for (const size_t index : indices) {
    if (index >= range_.count) {
      throw InvalidArgument(
          c10::str("[TokenDataset] expected an index below ", range_.count, ", but got ", index));
    }
    places.push_back(range_.begin + index);
  }
  return std::visit([&](const auto& sequences) { return sequences.get_batch(places); }, source_);
}

std::string TokenDataset::identity() const {
  return c10::str(std::visit([](const auto& sequences) { return sequences.identity(); }, source_), ", ",
                  range_.count, " from ", range_.begin, " on");
}

DistributedDataset<Example> distribute(const Strategy& strategy, const TokenDataset& dataset,
                                       const DistributeOptions& options) {
  if (std::holds_alternative<ParquetTokens>(dataset.source()))
    return strategy.distribute_dataset(ParquetSequences(dataset), options);
  return strategy.distribute_dataset(dataset, options);
}

}  // namespace lockstep::apps
