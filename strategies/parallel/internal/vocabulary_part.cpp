#include "lockstep/strategies/parallel/internal/vocabulary_part.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/StringUtil.h>

#include "lockstep/runtime/base/errors.h"

namespace lockstep {

VocabularyPart part_of_ids(const at::Tensor& ids, int64_t begin, int64_t count) {
  const at::NoGradGuard no_grad;
  const at::Tensor shifted = ids - begin;
  const at::Tensor is_elsewhere = shifted.lt(0).logical_or_(shifted.ge(count));
  return {shifted.masked_fill(is_elsewhere, 0), is_elsewhere};
}

void check_ids(const std::string& who, const at::Tensor& ids, int64_t vocabulary,
               std::optional<int64_t> ignored) {
  if (ids.scalar_type() != at::kLong && ids.scalar_type() != at::kInt)
    throw InvalidArgument(
        c10::str("[", who, "] expected ids of int64 or int32, but got ", ids.scalar_type()));
  if (ids.numel() == 0) return;
  const at::NoGradGuard no_grad;
  at::Tensor is_wrong = ids.lt(0).logical_or_(ids.ge(vocabulary));
  if (ignored) is_wrong.logical_and_(ids.ne(*ignored));
  if (ids.is_cuda()) return at::_assert_async(is_wrong.any().logical_not());
  if (!is_wrong.any().item<bool>()) return;
  throw InvalidArgument(c10::str("[", who, "] expected ids from 0 to ", vocabulary - 1, ", but got ",
                                 ids.masked_select(is_wrong)[0].item<int64_t>()));
}

}  // namespace lockstep
