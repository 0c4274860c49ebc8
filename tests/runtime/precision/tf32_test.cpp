#include "lockstep/runtime/precision/tf32.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Tf32Guard, ConvolutionsOnlyIsLibTorchsDefault) {
  const bool products = at::globalContext().allowTF32CuBLAS();
  const bool convolutions = at::globalContext().allowTF32CuDNN();
  const Tf32Guard tf32(Tf32Use::kConvolutions);
  EXPECT_EQ(at::globalContext().allowTF32CuBLAS(), products);
  EXPECT_EQ(at::globalContext().allowTF32CuDNN(), convolutions);
}

TEST(Tf32Guard, AllowsOrForbidsTf32WhileItLivesAndPutsTheSettingsBack) {
  auto& context = at::globalContext();
  for (const bool products : {false, true}) {
    for (const bool convolutions : {false, true}) {
      context.setAllowTF32CuBLAS(products);
      context.setAllowTF32CuDNN(convolutions);
      for (const auto use : {Tf32Use::kNone, Tf32Use::kConvolutions, Tf32Use::kAll}) {
        const Tf32Guard tf32(use);
        EXPECT_EQ(context.allowTF32CuBLAS(), use == Tf32Use::kAll);
        EXPECT_EQ(context.allowTF32CuDNN(), use != Tf32Use::kNone);
      }
      EXPECT_EQ(context.allowTF32CuBLAS(), products);
      EXPECT_EQ(context.allowTF32CuDNN(), convolutions);
    }
  }
  context.setAllowTF32CuBLAS(false);
}

}  // namespace
}  // namespace lockstep
