#include "lockstep/apps/shared/precision/precision_kind.h"

namespace lockstep::apps {

std::string precision_name(PrecisionKind precision) {
  switch (precision) {
    case PrecisionKind::kFloat32:
      return "float32";
    case PrecisionKind::kIeee:
      return "ieee";
    case PrecisionKind::kFloat64:
      return "float64";
    case PrecisionKind::kTf32:
      return "tf32";
    case PrecisionKind::kBFloat16:
      return "bfloat16";
    case PrecisionKind::kFloat16:
      return "float16";
  }
  return "";
}

std::string precision_text(PrecisionKind precision) {
  std::string name = precision_name(precision);
  switch (precision) {
    case PrecisionKind::kFloat32:
    case PrecisionKind::kFloat64:
      break;
    case PrecisionKind::kIeee:
      return name + ": float32 without TF32";
    case PrecisionKind::kTf32:
      return name + " in products and convolutions, else float32";
    case PrecisionKind::kBFloat16:
      return name + " by autocast, parameters in float32";
    case PrecisionKind::kFloat16:
      return name + " by autocast, parameters in float32, loss scaled";
  }
  return name;
}

measurement::MatrixNumbers matrix_numbers(PrecisionKind precision) {
  switch (precision) {
    case PrecisionKind::kFloat64:
      return measurement::MatrixNumbers::kFloat64;
    case PrecisionKind::kTf32:
      return measurement::MatrixNumbers::kTf32;
    case PrecisionKind::kBFloat16:
      return measurement::MatrixNumbers::kBFloat16;
    case PrecisionKind::kFloat16:
      return measurement::MatrixNumbers::kFloat16;
    case PrecisionKind::kFloat32:
    case PrecisionKind::kIeee:
      break;
  }
  return measurement::MatrixNumbers::kFloat32;
}

Flag precision_flag() {
  return {"Training", "precision", "NAME",
          "Precision of the training. float32: as in PyTorch, GPUs use TF32 in convolutions. ieee: "
          "float32 without TF32. tf32: float32 with TF32 in matrix products, too (GPUs). float64. "
          "bfloat16 or float16: mixed precision with parameters in float32; float16 also scales the loss, "
          "and is slow on CPUs",
          precision_name(PrecisionKind::kFloat32)};
}

PrecisionKind read_precision(const Arguments& given, PrecisionKind otherwise) {
  return given.choice<PrecisionKind>("precision",
                                     {{"float32", PrecisionKind::kFloat32},
                                      {"ieee", PrecisionKind::kIeee},
                                      {"float64", PrecisionKind::kFloat64},
                                      {"tf32", PrecisionKind::kTf32},
                                      {"bfloat16", PrecisionKind::kBFloat16},
                                      {"float16", PrecisionKind::kFloat16}},
                                     otherwise);
}

}  // namespace lockstep::apps
