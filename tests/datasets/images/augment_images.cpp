// Changes images for augmentation_torchvision_test.py: reads float32 images [n, c, h, w] and then their draws
// from the standard input, and writes the images as the CPU's own code changes them, and then as tensors do.
// Arguments: n c h w crop_padding flip rotation brightness contrast saturation hue.
#include <torch/torch.h>

#include <cstdlib>
#include <iostream>
#include <vector>

#include "lockstep/datasets/images/image_augmentation.h"
#include "lockstep/datasets/images/internal/device_augmentation.h"

namespace {

at::Tensor read_floats(at::IntArrayRef sizes) {
  at::Tensor values = torch::empty(sizes);
  std::cin.read(static_cast<char*>(values.mutable_data_ptr()), static_cast<std::streamsize>(values.nbytes()));
  return values;
}

void write_floats(const at::Tensor& values) {
  const at::Tensor rows = values.contiguous();
  std::cout.write(static_cast<const char*>(rows.const_data_ptr()),
                  static_cast<std::streamsize>(rows.nbytes()));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 12) return 2;
  std::vector<double> numbers;
  for (int i = 1; i < argc; ++i) numbers.push_back(std::atof(argv[i]));
  const auto whole = [&](size_t i) { return static_cast<int64_t>(numbers[i]); };
  const lockstep::ImageAugmentation augment{.crop_padding = whole(4),
                                            .flip = numbers[5] != 0,
                                            .rotation = numbers[6],
                                            .brightness = numbers[7],
                                            .contrast = numbers[8],
                                            .saturation = numbers[9],
                                            .hue = numbers[10]};
  const auto images = read_floats({whole(0), whole(1), whole(2), whole(3)});
  const auto draws = read_floats({whole(0), 9});
  if (!std::cin) return 3;
  write_floats(augment.apply(images, draws));
  write_floats(lockstep::augment_by_tensors(augment, images, draws));
  return 0;
}
