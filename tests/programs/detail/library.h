void library_add(double value);
void library_map(double *values, int n, double (*function)(double));
double library_sum(void);
