#include "lockstep/runtime/precision/tf32.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Tf32Guard, AllowsOrForbidsTf32WhileItLivesAndPutsTheSettingsBack) {
  auto& context = at::globalContext();
  for (const bool products : {false, true}) {
    for (const bool convolutions : {false, true}) {
      context.setAllowTF32CuBLAS(products);
      context.setAllowTF32CuDNN(convolutions);
      for (const bool allowed : {false, true}) {
        const Tf32Guard tf32(allowed);
        EXPECT_EQ(context.allowTF32CuBLAS(), allowed);
        EXPECT_EQ(context.allowTF32CuDNN(), allowed);
      }
      EXPECT_EQ(context.allowTF32CuBLAS(), products);
      EXPECT_EQ(context.allowTF32CuDNN(), convolutions);
    }
  }
  context.setAllowTF32CuBLAS(false);
}

}  // namespace
}  // namespace lockstep
