#include "lockstep/training/state/internal/shard_pieces.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace lockstep {
namespace {

/// Neighbours in a part of a parameter.
struct Box {
  std::vector<int64_t> begin;  ///< the first one's place in the part, along each dimension
  torch::Tensor elements;
};

/// Cuts consecutive elements of a contiguous tensor, of which the first has the number `first`, into boxes:
/// the rest of a row, whole rows, and the beginning of a row, and so on within rows. `outer` is the place
/// along the dimensions before those of `sizes`.
void append_boxes(torch::Tensor elements, int64_t first, at::IntArrayRef sizes,
                  const std::vector<int64_t>& outer, std::vector<Box>& boxes) {
  const int64_t in_row = c10::multiply_integers(sizes.slice(1));
  while (elements.numel() > 0) {
    const int64_t row = first / in_row;
    const int64_t in_first_row = first % in_row;
    const bool are_rows = in_first_row == 0 && elements.numel() >= in_row;
    const int64_t count =
        are_rows ? elements.numel() / in_row * in_row : std::min(elements.numel(), in_row - in_first_row);
    auto begin = outer;
    begin.push_back(row);
    const torch::Tensor taken = elements.narrow(0, 0, count);
    if (are_rows) {
      std::vector<int64_t> box_sizes(outer.size(), 1);
      box_sizes.push_back(count / in_row);
      box_sizes.insert(box_sizes.end(), sizes.begin() + 1, sizes.end());
      begin.resize(box_sizes.size(), 0);
      boxes.push_back({std::move(begin), taken.view(box_sizes)});
    } else {
      append_boxes(taken, in_first_row, sizes.slice(1), begin, boxes);
    }
    elements = elements.narrow(0, count, elements.numel() - count);
    first += count;
  }
}

/// Appends what a box of a cut part has of each range of the cut, with its place in the whole parameter.
void append_pieces(const Box& box, const ShardedParameter& cut, std::vector<TensorPiece>& pieces) {
  const int64_t dim = *cut.dim;
  const auto along = static_cast<size_t>(dim);
  const int64_t begin = box.begin[along];
  const int64_t end = begin + box.elements.size(dim);
  for (const auto& range : ranges_of_cut(cut)) {
    const int64_t from = std::max(begin, range.own_offset);
    const int64_t to = std::min(end, range.own_offset + range.length);
    if (from >= to) continue;
    auto place = box.begin;
    place[along] = range.offset + from - range.own_offset;
    pieces.push_back({.elements = box.elements.narrow(dim, from - begin, to - from).contiguous(),
                      .begin = std::move(place)});
  }
}

}  // namespace

std::vector<TensorPiece> pieces_of_shard(const torch::Tensor& own, const ShardedParameter& shard) {
  if (!shard.dim && shard.cut == nullptr) return {{.offset = shard.offset, .elements = own}};
  const ShardedParameter& cut = shard.dim ? shard : *shard.cut;
  std::vector<Box> boxes;
  if (shard.dim) {
    boxes.push_back({std::vector<int64_t>(static_cast<size_t>(own.dim()), 0), own});
  } else {
    append_boxes(own, shard.offset, sizes_of_cut(cut), {}, boxes);
  }
  std::vector<TensorPiece> pieces;
  for (const auto& box : boxes) append_pieces(box, cut, pieces);
  return pieces;
}

}  // namespace lockstep
