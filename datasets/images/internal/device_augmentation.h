#pragma once

#include <ATen/core/Tensor.h>

#include "lockstep/datasets/images/image_augmentation.h"

namespace lockstep {

/// Changes images on any device by tensor arithmetic, as HostAugmentation does on the CPU. Arguments as
/// ImageAugmentation::apply(), which has checked them; there is at least one image.
at::Tensor augment_by_tensors(const ImageAugmentation& augmentation, const at::Tensor& images,
                              const at::Tensor& draws);

}  // namespace lockstep
