#include "lockstep/apps/train_images/data/parquet_image_part.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/datasets/tensors/collated_dataset.h"
#include "lockstep/datasets/tensors/tensor_dataset.h"

namespace lockstep::apps {

static_assert(CollatedDataset<ParquetImagePart>);

ParquetImagePart::ParquetImagePart(ParquetImages images, const ImageSelection& selection)
    : images_(std::move(images)), selection_(selection), all_(*images_.size()) {
  size_ = selection.takes_tests ? selection.num_tests : all_ - selection.num_tests;
  if (selection.limit > 0) size_ = std::min(size_, selection.limit);
}

// Of n images, t are to test on: image i is if floor((i + 1) t / n) is more than floor(i t / n). The two
// functions below follow from it. Their products fit for up to 2^32 images.

/// Returns the place of an image among those of the files.
size_t ParquetImagePart::place_of(size_t index) const {
  const size_t tests = selection_.num_tests;
  if (selection_.takes_tests) return ((index + 1) * all_ + tests - 1) / tests - 1;
  return index * all_ / (all_ - tests);
}

/// Returns how many images of the part are among the first `place` of the files.
size_t ParquetImagePart::count_before(size_t place) const {
  if (all_ == 0) return 0;
  const size_t tests = selection_.num_tests;
  const size_t count =
      selection_.takes_tests ? place * tests / all_ : (place * (all_ - tests) + all_ - 1) / all_;
  return std::min(count, size_);
}

torch::data::Example<> ParquetImagePart::get_batch(c10::ArrayRef<size_t> indices) const {
  check_indices(indices, size_, "ParquetImagePart");
  std::vector<size_t> places;
  places.reserve(indices.size());
  for (const size_t index : indices) places.push_back(place_of(index));
  return images_.get_batch(places);
}

std::string ParquetImagePart::identity() const {
  return c10::str(images_.identity(), ", ", size_, selection_.takes_tests ? " of the " : " without the ",
                  selection_.num_tests, " to test on");
}

std::vector<size_t> ParquetImagePart::chunk_sizes() const {
  std::vector<size_t> sizes = images_.chunk_sizes();
  size_t end = 0;  // of the chunk, among all images
  size_t before = 0;
  for (size_t& size : sizes) {
    end += size;
    const size_t until = count_before(end);
    size = until - before;
    before = until;
  }
  return sizes;
}

void ParquetImagePart::prefetch_chunks(const std::vector<size_t>& chunks,
                                       const ParquetDataset::OrderWithin& order_within) const {
  // The order is one of whole row groups only if the part is the whole.
  images_.prefetch_chunks(chunks, size_ == all_ ? order_within : ParquetDataset::OrderWithin{});
}

}  // namespace lockstep::apps
